select member
from members
where namespace = ?1 and expires_at > cast(unixepoch('now', 'subsec') * 1000 as integer)
order by member
