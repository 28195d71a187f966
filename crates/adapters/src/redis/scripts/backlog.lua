-- Counts the entries of a queue that were not delivered to a group. Runs before every dispatch, so its cost does not
-- grow with the queue.
-- KEYS: the queue. ARGV: the group, and the limit of entries that are counted one by one.
local queue, group, count_max = KEYS[1], ARGV[1], tonumber(ARGV[2])
local held = redis.pcall('XLEN', queue)
if type(held) ~= 'number' or held == 0 then
  -- Also if the key has another type: the caller handles the error.
  return held
end

for _, info in ipairs(redis.call('XINFO', 'GROUPS', queue)) do
  local fields = named(info)
  if fields['name'] == group then
    -- All entries that are held and not pending, minus those that the group has acknowledged and that are still held:
    -- other groups may need them, and not every worker deletes what it has acknowledged.
    local most = math.max(0, held - fields['pending'])
    if most == 0 then
      return 0
    end
    if type(fields['lag']) == 'number' then
      return math.min(fields['lag'], most)
    end
    -- Redis returns no lag once the last delivered entry is deleted while an earlier one is held. Undelivered entries
    -- are never deleted, so the difference of the group's two counters is still right.
    if type(fields['entries-read']) == 'number' then
      local added = named(redis.call('XINFO', 'STREAM', queue))['entries-added']
      return math.max(0, math.min(added - fields['entries-read'], most))
    end
    local count = math.min(most, count_max)
    return #redis.call('XRANGE', queue, '(' .. fields['last-delivered-id'], '+', 'COUNT', count)
  end
end
return held
