-- Claims entries that were delivered to another consumer of the group long enough ago, from one page of the pending
-- entries. After the last page, idle consumers with nothing pending are removed.
-- KEYS: the queue. ARGV: the group, the new consumer, the idle time, the limit of entries, the start of the page, its
-- size, and the idle time after which a consumer is removed (all times in ms).
-- Returns the start of the next page ('' after the last), and for each claimed entry: id, fields, deliveries.
local queue, group, taker = KEYS[1], ARGV[1], ARGV[2]
local idle, max, from, size = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local forget_after = tonumber(ARGV[7])

local page = redis.pcall('XPENDING', queue, group, 'IDLE', idle, from, '+', size)
if page['err'] then
  -- The queue or group does not exist: nothing is pending.
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
  -- The rest was deleted meanwhile and can no longer be delivered.
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
