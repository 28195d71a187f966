-- Claims entries that another consumer of the group was given long enough ago, from one page of what is pending. After the
-- last page, consumers that have nothing and have not been heard of for long are forgotten.
-- KEYS: the queue. ARGV: the group, the taker, the idle time, how many at most, where the page begins, its size, and after
-- how long a consumer is forgotten (all times in ms).
-- Answers where the next page begins ('' after the last), and of each claimed entry: id, fields, deliveries.
local queue, group, taker = KEYS[1], ARGV[1], ARGV[2]
local idle, max, from, size = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local forget_after = tonumber(ARGV[7])

local page = redis.pcall('XPENDING', queue, group, 'IDLE', idle, from, '+', size)
if page['err'] then
  -- No such queue or group: nothing is pending.
  return { '', {} }
end

local deliveries, wanted = {}, {}
for _, pending in ipairs(page) do
  if pending[2] ~= taker and #wanted < max then
    wanted[#wanted + 1] = pending[1]
    deliveries[pending[1]] = pending[4] + 1
  end
end

local taken = {}
if #wanted > 0 then
  local claimed = redis.call('XCLAIM', queue, group, taker, 0, unpack(wanted))
  for _, entry in ipairs(claimed) do
    if entry and entry[2] then
      taken[#taken + 1] = { entry[1], entry[2], deliveries[entry[1]] }
      deliveries[entry[1]] = nil
    end
  end
  -- What is left was deleted meanwhile: nobody can be given it any more.
  for id in pairs(deliveries) do
    redis.call('XACK', queue, group, id)
  end
end

if #page == size then
  return { '(' .. page[#page][1], taken }
end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', queue, group)) do
  local fields = named(info)
  if fields['name'] ~= taker and fields['pending'] == 0 and fields['idle'] >= forget_after then
    redis.call('XGROUP', 'DELCONSUMER', queue, group, fields['name'])
  end
end
return { '', taken }
