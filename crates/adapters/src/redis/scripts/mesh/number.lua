-- A number that no instance has, for the one who bears the token. Counts on where Redis has lost the counter and instances
-- of before are still there: their heartbeats say so, or their token, or that somebody listens on the channel of that number.
-- KEYS: the counter, the heartbeats.
-- ARGV: what the name of a channel begins with, what that of a bearer does, the token, how long it is kept in ms.
-- Answers the number.
while true do
  local id = string.format('%.0f', redis.call('INCR', KEYS[1]))
  local taken = redis.call('ZSCORE', KEYS[2], id) or redis.call('EXISTS', ARGV[2] .. id) == 1
  if not taken then
    taken = tonumber(redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. id)[2]) > 0
  end
  if not taken then
    redis.call('SET', ARGV[2] .. id, ARGV[3], 'PX', ARGV[4])
    return id
  end
end
