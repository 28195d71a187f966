-- Removes an instance from the registry, unless its number belongs to another by now.
-- KEYS: the heartbeats, the host names, the number's token. ARGV: the instance, its token.
local bearer = redis.call('GET', KEYS[3])
if bearer and bearer ~= ARGV[2] then
  return
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
