-- Renews a term that is not over.
-- KEYS: the leader's key. ARGV: the holder, the epoch, the TTL in ms. Returns the rest in ms, or -1 if the term is
-- over.
local held = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return -1
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('PTTL', KEYS[1])
