insert into jobs (id, state, queue_id, type_id, rank, due_at, created_at, scheduled_at, unique_key, schedule, keys,
                  document, args)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
on conflict do nothing
