-- Acknowledges entries for a group, and deletes those that no other group still needs.
-- KEYS: the queue. ARGV: the group, then ids.
local queue, group = KEYS[1], ARGV[1]
local acked = {}
for i = 2, #ARGV do
  -- One by one: only what this group really had pending may be deleted below.
  if redis.call('XACK', queue, group, ARGV[i]) == 1 then
    acked[#acked + 1] = ARGV[i]
  end
end
if #acked == 0 then
  return 0
end

local others = {}
for _, info in ipairs(redis.call('XINFO', 'GROUPS', queue)) do
  local fields = {}
  for i = 1, #info, 2 do
    fields[info[i]] = info[i + 1]
  end
  if fields['name'] ~= group then
    others[#others + 1] = fields
  end
end

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function needed(id)
  local ms, seq = parts(id)
  for _, other in ipairs(others) do
    local last_ms, last_seq = parts(other['last-delivered-id'])
    if ms > last_ms or (ms == last_ms and seq > last_seq) then
      return true
    end
    if other['pending'] > 0 and #redis.call('XPENDING', queue, other['name'], id, id, 1) > 0 then
      return true
    end
  end
  return false
end

for _, id in ipairs(acked) do
  if #others == 0 or not needed(id) then
    redis.call('XDEL', queue, id)
  end
end
return #acked
