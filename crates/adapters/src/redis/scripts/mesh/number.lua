-- A number that no instance has. Counts on where Redis has lost the counter and instances of before are still there: their
-- heartbeats say so, or that somebody listens on the channel of that number.
-- KEYS: the counter, the heartbeats. ARGV: what the name of a channel begins with. Answers the number.
while true do
  local id = string.format('%.0f', redis.call('INCR', KEYS[1]))
  local taken = redis.call('ZSCORE', KEYS[2], id)
  if not taken then
    local listeners = redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. id)
    taken = tonumber(listeners[2]) > 0
  end
  if not taken then
    return id
  end
end
