-- An instance is alive, and is called so. The counter never falls behind a number that is in use.
-- KEYS: the heartbeats, the host names, the counter. ARGV: the instance, its host name.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if tonumber(redis.call('GET', KEYS[3]) or '0') < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[3], ARGV[1])
end
