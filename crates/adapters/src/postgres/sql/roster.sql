select member from convoke_members where namespace = $1 and expires_at > clock_timestamp() order by member
