-- Takes the lock where nobody has it. The same holder again finds its own: so a lost answer can be asked for.
-- KEYS: the lock. ARGV: the holder, its time in ms. Answers 1 where it has the lock.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
