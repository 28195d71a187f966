-- Removes a consumer that vanished. A consumer with pending entries stays: they would be lost with it. Entries that it
-- never returned to a caller count as delivered at the beginning of time, so that they can be taken over at once.
-- KEYS: the queue. ARGV: the group, the consumer, the entries that were not returned.
local queue, group, consumer = KEYS[1], ARGV[1], ARGV[2]
if #ARGV > 2 then
  local claim = { 'XCLAIM', queue, group, consumer, 0 }
  for i = 3, #ARGV do
    claim[#claim + 1] = ARGV[i]
  end
  for _, word in ipairs({ 'TIME', 0, 'JUSTID' }) do
    claim[#claim + 1] = word
  end
  redis.pcall(unpack(claim))
end
local pending = redis.pcall('XPENDING', queue, group, '-', '+', 1, consumer)
if not pending['err'] and #pending == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', queue, group, consumer)
end
return 0
