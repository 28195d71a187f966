-- Deletes entries of many queues that a multiplex is done with; a queue that is empty then is no more. As one step, so that
-- an entry that comes meanwhile is never deleted with its queue.
-- KEYS: the queues. ARGV: for each queue the number of its ids, then the ids.
local at = 1
for _, queue in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  if count > 0 then
    -- Not an error where the key is something else: there is nothing of ours in it.
    redis.pcall('XDEL', queue, unpack(ARGV, at + 1, at + count))
  end
  if redis.pcall('XLEN', queue) == 0 then
    redis.call('UNLINK', queue)
  end
  at = at + count + 1
end
return #KEYS
