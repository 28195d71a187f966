-- Returns the ends of queues: the id of the last entry ever added to each, or '' if the queue does not exist.
-- KEYS: the queues.
local ends = {}
for i, queue in ipairs(KEYS) do
  -- Most do not exist: an error of XINFO for each would cost more than the rest.
  if redis.call('EXISTS', queue) == 0 then
    ends[i] = ''
  else
    -- No error if the key has another type: it holds no entries.
    local info = redis.pcall('XINFO', 'STREAM', queue)
    ends[i] = info['err'] and '' or named(info)['last-generated-id']
  end
end
return ends
