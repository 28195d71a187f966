update jobs set channels_cleaned = 1
where id = ?1 and state >= {first_ended} and completed_at < ?2 and channels_cleaned = 0
