-- Prolongs the lock where it is the holder's.
-- KEYS: the lock. ARGV: the holder, its time in ms. Answers 1 where it was.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
