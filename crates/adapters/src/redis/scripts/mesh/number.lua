-- Returns a number that no instance has, and stores the token of its owner. Skips numbers in use if Redis has lost the
-- counter while instances are alive: their heartbeats show it, or their token, or a subscriber on the channel of the
-- number.
-- KEYS: the counter, the heartbeats.
-- ARGV: the prefix of channels, the prefix of token keys, the token, its TTL in ms.
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
