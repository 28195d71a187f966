-- Deletes queues that are empty, have nothing pending in any group, and were not read for long. One step, so that an
-- entry that arrives meanwhile is not deleted with its queue.
-- KEYS: the queues. ARGV: the idle time in ms after which a consumer counts as gone, and 1 if all are kept while any
-- client waits in a blocking call: this bus never blocks, and Redis does not report at which key another client waits.
local gone_after = tonumber(ARGV[1])
if ARGV[2] == '1' then
  local info = redis.pcall('INFO', 'clients')
  if type(info) == 'string' and tonumber(string.match(info, 'blocked_clients:(%d+)') or 0) > 0 then
    return 0
  end
end

local function is_read(queue, groups)
  for _, info in ipairs(groups) do
    local group = named(info)
    if group['pending'] > 0 then
      return true
    end
    if group['consumers'] > 0 then
      for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', queue, group['name'])) do
        if named(consumer)['idle'] < gone_after then
          return true
        end
      end
    end
  end
  return false
end

local forgotten = 0
for _, queue in ipairs(KEYS) do
  -- No error if the queue does not exist or the key has another type: it holds no entries.
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  if not groups['err'] and redis.call('XLEN', queue) == 0 and not is_read(queue, groups) then
    forgotten = forgotten + redis.call('UNLINK', queue)
  end
end
return forgotten
