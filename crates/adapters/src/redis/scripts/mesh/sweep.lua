-- Removes instances without a recent heartbeat, if the caller holds the lock.
-- KEYS: the lock, the heartbeats, the host names. ARGV: the holder, the age in ms from which a heartbeat is too old.
-- Returns the removed instances, or -1 if the caller does not hold the lock.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - tonumber(ARGV[2])))
for _, id in ipairs(gone) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
return gone
