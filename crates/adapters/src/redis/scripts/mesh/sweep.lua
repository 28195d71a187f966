-- Removes who was not heard of for too long, on behalf of the one who holds the lock.
-- KEYS: the lock, the heartbeats, the host names. ARGV: the holder, how long is too long in ms.
-- Answers who was removed, or -1 where the lock is not the holder's.
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
