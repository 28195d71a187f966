{job}
join (
    -- As many as fit the bytes, but at least one. The length of a long value is known without reading it.
    select s.seq,
           sum(octet_length(s.args) + coalesce(octet_length(s.result), 0) + coalesce(octet_length(s.error), 0))
               over (order by s.seq desc) as bytes,
           row_number() over (order by s.seq desc) as place
    from convoke_jobs s
    where s.seq = any ($1::bigint[])
) s on s.seq = j.seq
where s.bytes <= $2 or s.place = 1
order by j.seq desc
