select s.seq, s.at, s.level, s.message, s.execution_id
from (
    select l.*, sum(octet_length(l.message)) over (order by l.seq) as bytes, row_number() over (order by l.seq) as place
    from (
        select l.seq, l.at, l.level, l.message, l.execution_id
        from convoke_jobs j
        join convoke_logs l on l.job = j.seq
        where j.id = $1 and l.seq > $2
        order by l.seq
        limit $3
    ) l
) s
where s.bytes <= $4 or s.place = 1
order by s.seq
