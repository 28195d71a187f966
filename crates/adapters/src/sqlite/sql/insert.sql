insert into jobs (id, state, queue_id, type_id, priority, due_at, max_retries, timeout,
                  retry_initial, retry_multiplier, retry_max, retry_jitter,
                  created_at, scheduled_at, correlation_id, unique_key, schedule, args)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
on conflict do nothing
