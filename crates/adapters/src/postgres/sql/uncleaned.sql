select id from convoke_uncleaned where completed_at < $1 order by completed_at, seq limit $2
