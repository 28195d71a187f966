-- How many entries of a queue a group was never given. Asked before every dispatch, so nothing here grows with the queue.
-- KEYS: the queue. ARGV: the group, and how many to count at most where they must be counted one by one.
local queue, group, count_max = KEYS[1], ARGV[1], tonumber(ARGV[2])
local held = redis.pcall('XLEN', queue)
if type(held) ~= 'number' or held == 0 then
  -- Also where the key is something else: that is for the caller to know.
  return held
end

for _, info in ipairs(redis.call('XINFO', 'GROUPS', queue)) do
  local fields = named(info)
  if fields['name'] == group then
    -- All that is held and not pending, less what is held although the group has acknowledged it: other groups may
    -- need that, and not every worker deletes what it has acknowledged.
    local most = math.max(0, held - fields['pending'])
    if most == 0 then
      return 0
    end
    if type(fields['lag']) == 'number' then
      return math.min(fields['lag'], most)
    end
    -- Redis does not say once the last entry that was given is deleted while an earlier one is held. Nothing that a group
    -- was not given is ever deleted, so the difference of its two counters is still right.
    if type(fields['entries-read']) == 'number' then
      local added = named(redis.call('XINFO', 'STREAM', queue))['entries-added']
      return math.max(0, math.min(added - fields['entries-read'], most))
    end
    local count = math.min(most, count_max)
    return #redis.call('XRANGE', queue, '(' .. fields['last-delivered-id'], '+', 'COUNT', count)
  end
end
return held
