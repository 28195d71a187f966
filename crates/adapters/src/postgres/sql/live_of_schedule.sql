select exists (select 1 from convoke_waiting where schedule = $1) or exists (select 1 from convoke_runs where schedule = $1)
