-- Records an instance's heartbeat and host name. The counter never falls behind a number that is in use.
-- If Redis has lost its data, the number may have been assigned to another instance, which then keeps it: the token
-- shows it, or, without a token, a second subscriber on its channel.
-- KEYS: the heartbeats, the host names, the counter, the number's token.
-- ARGV: the instance, its host name, its token, the TTL of the token in ms, its channel, the age in ms up to which an
-- instance is alive.
-- Returns how many are alive, or -1 if the number belongs to another instance.
local bearer = redis.call('GET', KEYS[4])
if bearer and bearer ~= ARGV[3] then
  return -1
end
if not bearer and tonumber(redis.call('PUBSUB', 'NUMSUB', ARGV[5])[2]) > 1 then
  return -1
end
redis.call('SET', KEYS[4], ARGV[3], 'PX', ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if tonumber(redis.call('GET', KEYS[3]) or '0') < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[3], ARGV[1])
end
return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now - tonumber(ARGV[6])), '+inf')
