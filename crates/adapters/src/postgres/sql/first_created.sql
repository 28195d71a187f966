-- Returns the number of the first job that was created at $1 or later, as `listing::first_created` does.
with recursive search (low, high) as (
    -- Not min and max: a plan that was made while the table was empty reads another index for them, as a whole.
    select coalesce((select seq from convoke_jobs order by seq limit 1), 0),
           coalesce((select seq from convoke_jobs order by seq desc limit 1), 0) + 1
    union all
    select case when j.created_at < $1::bigint then j.seq + 1 else s.low end,
           case when j.created_at < $1::bigint then s.high else s.middle end
    from (select low, high, low + (high - low) / 2 as middle from search where low < high) s
    left join lateral (
        select j.seq, j.created_at from convoke_jobs j where j.seq >= s.middle and j.seq < s.high order by j.seq limit 1
    ) j on true
)
select max(low) as seq from search
