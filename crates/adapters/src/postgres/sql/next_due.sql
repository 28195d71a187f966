select min(due_at) from convoke_waiting where scheduled
