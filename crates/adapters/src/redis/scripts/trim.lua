-- Deletes entries that were delivered to and acknowledged by every group of a queue, up to the first that was not.
-- Consumers of this bus delete on acknowledgement; foreign ones may only send XACK.
-- KEYS: the queues.

-- Ids are two numbers of up to 64 bits, which Lua cannot hold: compared as text, the longer is the larger.
local function is_less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function is_before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then
    return is_less(a_ms, b_ms)
  end
  return is_less(a_seq, b_seq)
end

local dropped = 0
for _, queue in ipairs(KEYS) do
  -- No error if the queue does not exist or the key has another type: it holds no entries.
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  local needed, done
  for _, info in ipairs(groups['err'] and {} or groups) do
    local fields = named(info)
    if fields['pending'] > 0 then
      local first = redis.call('XPENDING', queue, fields['name'])[2]
      if not needed or is_before(first, needed) then
        needed = first
      end
    elseif not done or is_before(fields['last-delivered-id'], done) then
      -- The group has acknowledged this entry, too.
      done = fields['last-delivered-id']
    end
  end
  if done and (not needed or is_before(done, needed)) then
    dropped = dropped + redis.call('XTRIM', queue, 'MINID', done) + redis.call('XDEL', queue, done)
  elseif needed then
    dropped = dropped + redis.call('XTRIM', queue, 'MINID', needed)
  end
end
return dropped
