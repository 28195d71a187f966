-- Lists the members of a group that read queues. Members that have nothing pending and did not read for long are left
-- out; those idle for longer still are removed from the group.
-- KEYS: the queues. ARGV: the group, the idle times in ms after which a member is left out and removed, and the limit
-- of members per queue.
-- Returns for each queue: whether it has the group, whether any client waits in a blocking call on the server, and for
-- each member: name, idle time in ms, pending entries.
local group, left_out, removed, max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- This bus never blocks, so a blocked client is a foreign one. Redis does not report at which key.
local awaited
local function is_awaited()
  if awaited == nil then
    local info = redis.pcall('INFO', 'clients')
    awaited = type(info) == 'string' and tonumber(string.match(info, 'blocked_clients:(%d+)') or 0) > 0
  end
  return awaited and 1 or 0
end

local replies = {}
for i, queue in ipairs(KEYS) do
  -- An error if the queue or group does not exist, or the key has another type: it has no readers.
  local consumers = redis.pcall('XINFO', 'CONSUMERS', queue, group)
  if consumers['err'] then
    replies[i] = { 0, 0 }
  else
    local reply = { 1, is_awaited() }
    for _, info in ipairs(consumers) do
      local fields = named(info)
      local idle, pending = fields['idle'], fields['pending']
      if pending == 0 and idle >= removed then
        redis.call('XGROUP', 'DELCONSUMER', queue, group, fields['name'])
      elseif (pending > 0 or idle < left_out) and #reply < max + 2 then
        reply[#reply + 1] = { fields['name'], idle, pending }
      end
    end
    replies[i] = reply
  end
end
return replies
