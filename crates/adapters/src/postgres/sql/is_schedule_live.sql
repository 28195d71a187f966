select exists (select 1 from convoke_waiting where schedule = $1)
       or exists (select 1 from convoke_runs where schedule = $1)
       or exists (
           select 1
           from convoke_flights f
           join convoke_jobs j on j.seq = f.seqs[1] and j.pack = f.pack and j.state < {first_ended}
           where f.schedule = $1
       ) as live
