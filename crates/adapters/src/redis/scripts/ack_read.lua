-- Deletes acknowledged entries of a multiplex from many queues, and queues that are empty then. One step, so that an
-- entry that arrives meanwhile is never deleted with its queue.
-- KEYS: the queues. ARGV: for each queue the number of its ids, then the ids.
local at = 1
for _, queue in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  if count > 0 then
    -- No error if the key has another type: none of these entries is in it.
    redis.pcall('XDEL', queue, unpack(ARGV, at + 1, at + count))
  end
  if redis.pcall('XLEN', queue) == 0 then
    redis.call('UNLINK', queue)
  end
  at = at + count + 1
end
return #KEYS
