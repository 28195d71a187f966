-- Lists the members of a group that read queues. Members that have nothing pending and did not read for long are left out; those
-- that did not for longer still are removed from the group.
-- KEYS: the queues. ARGV: the group, after how long (ms) a member is left out and after how long it is removed, and how many
-- are returned of a queue.
-- Answers of each queue: whether it has the group, whether somebody waits in a blocking call anywhere on the server, and of
-- each member: name, idle time (ms), pending entries.
local group, left_out, removed, max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Nobody who uses this bus blocks, so that whoever does is somebody else. Redis does not say at which key.
local awaited
local function is_awaited()
  if awaited == nil then
    local info = redis.pcall('INFO', 'clients')
    awaited = type(info) == 'string' and tonumber(string.match(info, 'blocked_clients:(%d+)') or 0) > 0
  end
  return awaited and 1 or 0
end

local answers = {}
for i, queue in ipairs(KEYS) do
  -- An error where there is no such queue or group, or the key is something else: nobody reads it.
  local consumers = redis.pcall('XINFO', 'CONSUMERS', queue, group)
  if consumers['err'] then
    answers[i] = { 0, 0 }
  else
    local answer = { 1, is_awaited() }
    for _, info in ipairs(consumers) do
      local fields = named(info)
      local idle, pending = fields['idle'], fields['pending']
      if pending == 0 and idle >= removed then
        redis.call('XGROUP', 'DELCONSUMER', queue, group, fields['name'])
      elseif (pending > 0 or idle < left_out) and #answer < max + 2 then
        answer[#answer + 1] = { fields['name'], idle, pending }
      end
    end
    answers[i] = answer
  end
end
return answers
