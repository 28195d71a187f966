-- Deletes the entries of queues up to an end that was read before. A queue to which nothing was added since is removed
-- with its groups. One step, so that an entry that arrives meanwhile is never removed with its queue.
-- KEYS: the queues. ARGV: the end of each.
for i, queue in ipairs(KEYS) do
  local later = redis.pcall('XRANGE', queue, '(' .. ARGV[i], '+', 'COUNT', 1)
  if not later['err'] then
    if #later == 0 then
      redis.call('UNLINK', queue)
    else
      redis.call('XTRIM', queue, 'MINID', ARGV[i])
      redis.call('XDEL', queue, ARGV[i])
    end
  end
end
return #KEYS
