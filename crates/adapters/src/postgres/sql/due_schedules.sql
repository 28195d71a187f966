-- Without the document once the bytes are used up.
select case when s.bytes <= $2 or s.place = 1 then s.document end as document, s.name, s.next_run_at, s.last_run_at
from (
    select s.*, sum(octet_length(s.document)) over (order by s.next_run_at, s.name) as bytes,
           row_number() over (order by s.next_run_at, s.name) as place
    from (
        select name, document, next_run_at, last_run_at
        from convoke_schedules
        where next_run_at is not null and not paused
        order by next_run_at, name
        limit $1
    ) s
) s
order by s.next_run_at, s.name
