-- Removes queues that hold as many entries as their reader has read of them, all by one UNLINK. Leaves a queue that has
-- more: the caller deletes what it read. One step, so that an entry that arrives meanwhile is never removed with its
-- queue.
-- KEYS: the queues. ARGV: how many entries were read of each.
-- Returns the places of the queues that are left, from 0.
local whole, left = {}, {}
for i, queue in ipairs(KEYS) do
  -- No error if the key has another type: none of these entries is in it.
  local held = redis.pcall('XLEN', queue)
  if held == tonumber(ARGV[i]) then
    whole[#whole + 1] = queue
  elseif held ~= 0 then
    left[#left + 1] = i - 1
  end
end
if #whole > 0 then
  redis.call('UNLINK', unpack(whole))
end
return left
