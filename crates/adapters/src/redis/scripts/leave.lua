-- Releases the entries of a consumer: they count as delivered at the beginning of time, so that any other consumer can
-- take them over at once. A consumer with nothing pending is removed.
-- KEYS: the queue. ARGV: the group, the consumer.
local queue, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local from, size, had = '-', 500, false
while true do
  local page = redis.pcall('XPENDING', queue, group, from, '+', size, consumer)
  if page['err'] then
    return 0
  end
  local ids = {}
  for _, pending in ipairs(page) do
    ids[#ids + 1] = pending[1]
  end
  if #ids > 0 then
    had = true
    local claim = { 'XCLAIM', queue, group, consumer, 0 }
    for _, id in ipairs(ids) do
      claim[#claim + 1] = id
    end
    for _, word in ipairs({ 'TIME', 0, 'JUSTID' }) do
      claim[#claim + 1] = word
    end
    redis.call(unpack(claim))
  end
  if #ids < size then
    break
  end
  from = '(' .. ids[#ids]
end
if not had then
  redis.call('XGROUP', 'DELCONSUMER', queue, group, consumer)
end
return 1
