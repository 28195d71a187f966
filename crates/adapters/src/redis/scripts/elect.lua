-- Takes the leadership if it is free. The same token finds its own term again, so that a request whose reply was lost
-- can be repeated.
-- KEYS: the leader's key, the epoch's. ARGV: the candidate, the TTL in ms, the floor, 1 if that is sealed, a token.
-- Returns whether it was elected, then holder, epoch and the rest of the term in ms.
local leader, counter = KEYS[1], KEYS[2]
local held = redis.call('HMGET', leader, 'holder', 'epoch', 'token')
if held[1] then
  local mine = 0
  if held[3] == ARGV[5] then
    mine = 1
  end
  return { mine, held[1], held[2], redis.call('PTTL', leader) }
end
-- The counter outlives the terms: the last number, and the server that issued it.
local last, giver = string.match(redis.call('GET', counter) or '', '^(%d+) ?(%x*)$')
local number = math.max(tonumber(last or '0'), tonumber(ARGV[3])) + 1
local info = redis.pcall('INFO', 'server')
local me = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
-- If another server issued the last number, later ones may be lost. None of them was above the microseconds of its
-- clock: elections are not more frequent than that.
if ARGV[4] ~= '1' and (me == '' or giver ~= me) then
  local time = redis.call('TIME')
  number = math.max(number, time[1] * 1000000 + time[2])
end
local epoch = string.format('%.0f', number)
redis.call('SET', counter, epoch .. ' ' .. me)
redis.call('HSET', leader, 'holder', ARGV[1], 'epoch', epoch, 'token', ARGV[5])
redis.call('PEXPIRE', leader, ARGV[2])
return { 1, ARGV[1], epoch, redis.call('PTTL', leader) }
