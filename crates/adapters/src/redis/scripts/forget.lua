-- Forgets queues that hold nothing, of which nothing is pending in any group, and that no consumer has been heard at for
-- long. As one step, so that nothing that comes meanwhile goes with its queue.
-- KEYS: the queues. ARGV: after how long (ms) a consumer counts as gone, and whether all are kept while somebody waits in a
-- blocking call: nobody who uses this bus blocks, and Redis does not say at which key somebody else waits.
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
  -- Not an error where there is no such queue, or the key is something else: there is nothing of ours in it.
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  if not groups['err'] and redis.call('XLEN', queue) == 0 and not is_read(queue, groups) then
    forgotten = forgotten + redis.call('UNLINK', queue)
  end
end
return forgotten
