($3::int is null or j.queue_id = $3)
           and ($4::int[] is null or j.type_id = any ($4))
           and j.created_at >= $9::bigint and j.created_at < $10::bigint
           and (cardinality($5::text[]) = 0 or j.keys @> $5)
           and ($6::smallint[] is null
                or case when j.state >= {first_ended} then j.state = any ($6)
                        -- A job is dispatched or running only if it has a run in flight.
                        else $6 @> array[{live}]::smallint[]
                             or $6 && array[{live}]::smallint[]
                             and coalesce((select case when r.started_at is null then {dispatched} else {running} end
                                           from convoke_runs r
                                           where r.id = j.id),
                                          (select {dispatched} from ({flight}) f where f.execution_id is not null),
                                          j.state) = any ($6) end)
