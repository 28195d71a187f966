-- Where queues end: the id of the last entry that each was ever given, or '' if there is no such queue.
-- KEYS: the queues.
local ends = {}
for i, queue in ipairs(KEYS) do
  -- Not an error if the key is something else: there is nothing of ours in it.
  local info = redis.pcall('XINFO', 'STREAM', queue)
  ends[i] = info['err'] and '' or named(info)['last-generated-id']
end
return ends
