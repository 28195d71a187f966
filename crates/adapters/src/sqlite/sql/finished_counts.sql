select id, completed, failed, timed_out, cancelled from queues where ?1 is null or id = ?1
