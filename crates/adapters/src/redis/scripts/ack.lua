-- Acknowledges entries for a group, and deletes those that no other group still needs.
-- KEYS: the queue. ARGV: the group, then ids.
local queue, group = KEYS[1], ARGV[1]
local infos = redis.pcall('XINFO', 'GROUPS', queue)
if infos['err'] then
  -- The queue does not exist: nothing is pending.
  return 0
end

local own, others = nil, {}
for _, info in ipairs(infos) do
  local fields = named(info)
  if fields['name'] == group then
    own = fields
  else
    others[#others + 1] = fields
  end
end
if not own then
  return 0
end

local count = redis.call('XACK', queue, group, unpack(ARGV, 2))
if #others == 0 and count == #ARGV - 1 then
  -- The common case: one group, to which all were delivered.
  redis.call('XDEL', queue, unpack(ARGV, 2))
  return count
end

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function was_given(id, fields)
  local ms, seq = parts(id)
  local last_ms, last_seq = parts(fields['last-delivered-id'])
  return ms < last_ms or (ms == last_ms and seq <= last_seq)
end

local function is_needed(id)
  for _, other in ipairs(others) do
    if not was_given(id, other) then
      return true
    end
    if other['pending'] > 0 and #redis.call('XPENDING', queue, other['name'], id, id, 1) > 0 then
      return true
    end
  end
  return false
end

for i = 2, #ARGV do
  -- An entry that was not delivered to this group is not deleted, whatever the caller requests.
  if was_given(ARGV[i], own) and not is_needed(ARGV[i]) then
    redis.call('XDEL', queue, ARGV[i])
  end
end
return count
