-- How many entries of a queue a group was never given.
-- KEYS: the queue. ARGV: the group, and how many to count at most where they must be counted one by one.
local queue, group, count_max = KEYS[1], ARGV[1], tonumber(ARGV[2])
local held = redis.call('XLEN', queue)
if held == 0 then
  return 0
end
local groups = redis.call('XINFO', 'GROUPS', queue)
for _, info in ipairs(groups) do
  local fields = {}
  for i = 1, #info, 2 do
    fields[info[i]] = info[i + 1]
  end
  if fields['name'] == group then
    if #groups == 1 then
      -- What the only group has acknowledged is deleted: the queue holds what is pending and what nobody was given.
      return math.max(0, held - fields['pending'])
    end
    if type(fields['lag']) == 'number' then
      return fields['lag']
    end
    local waiting = redis.call('XRANGE', queue, '(' .. fields['last-delivered-id'], '+', 'COUNT', count_max)
    return #waiting
  end
end
return held
