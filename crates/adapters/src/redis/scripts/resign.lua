-- Ends a term if this holder has it under this epoch. Another process may ask in its name. The epoch's key stays.
-- KEYS: the leader's key. ARGV: the holder, the epoch, the channel on which those who wait are notified.
local held = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
if held[1] == ARGV[1] and held[2] == ARGV[2] then
  redis.call('DEL', KEYS[1])
  -- A user without the right to publish resigns all the same: then the others read the lease at intervals.
  redis.pcall('PUBLISH', ARGV[3], ARGV[2])
  return 1
end
return 0
