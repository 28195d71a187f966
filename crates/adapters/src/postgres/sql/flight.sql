-- The run of the job `j` as it was dispatched. No row, or no execution, if it has none or that moved to `convoke_runs`.
select f.executions[j.place - f.first + 1] as execution_id, f.dispatched_at, f.owner, f.first
from convoke_flights f
where f.pack = j.pack and f.first <= j.place and j.state < {first_ended}
order by f.first desc
limit 1
