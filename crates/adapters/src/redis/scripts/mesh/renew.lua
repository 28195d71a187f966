-- Renews the lock if the holder has it.
-- KEYS: the lock. ARGV: the holder, the TTL in ms. Returns 1 if it was renewed.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
