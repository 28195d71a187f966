-- Takes the leadership where nobody has it. The same token again finds its own term: so a lost answer can be asked for.
-- KEYS: the leader's key, the epoch's. ARGV: the candidate, its time in ms, the floor, a token.
-- Answers whether it was elected, then holder, epoch and what is left of the term in ms.
local leader, counter = KEYS[1], KEYS[2]
local held = redis.call('HMGET', leader, 'holder', 'epoch', 'token')
if held[1] then
  local mine = 0
  if held[3] == ARGV[4] then
    mine = 1
  end
  return { mine, held[1], held[2], redis.call('PTTL', leader) }
end
-- The counter outlives the terms, and the floor outlives the counter.
local last = tonumber(redis.call('GET', counter) or '0') or 0
local epoch = string.format('%.0f', math.max(last, tonumber(ARGV[3])) + 1)
redis.call('SET', counter, epoch)
redis.call('HSET', leader, 'holder', ARGV[1], 'epoch', epoch, 'token', ARGV[4])
redis.call('PEXPIRE', leader, ARGV[2])
return { 1, ARGV[1], epoch, redis.call('PTTL', leader) }
