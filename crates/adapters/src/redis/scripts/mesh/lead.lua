-- Takes the lock if it is free. The same holder finds its own lock again, so that a request whose reply was lost can be
-- repeated.
-- KEYS: the lock. ARGV: the holder, the TTL in ms. Returns 1 if it holds the lock.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
