-- Returns the present term: holder, epoch and the rest in ms; nothing if there is no leader.
-- KEYS: the leader's key.
local held = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
if not held[1] or not held[2] then
  return {}
end
return { held[1], held[2], redis.call('PTTL', KEYS[1]) }
