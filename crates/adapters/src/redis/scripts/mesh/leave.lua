-- Takes an instance off the registry, where its number is not another's by now.
-- KEYS: the heartbeats, the host names, the number's bearer. ARGV: the instance, its token.
local bearer = redis.call('GET', KEYS[3])
if bearer and bearer ~= ARGV[2] then
  return
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
