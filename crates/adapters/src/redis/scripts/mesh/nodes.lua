-- Returns the instances with a recent heartbeat: for each its number, the ms since its last heartbeat, its host name,
-- and its figures, empty if it publishes none.
-- KEYS: the heartbeats, the host names. ARGV: the largest age of a heartbeat in ms, the prefix of the keys of figures.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local oldest = string.format('(%.0f', now - tonumber(ARGV[1]))
local found = redis.call('ZRANGEBYSCORE', KEYS[1], oldest, '+inf', 'WITHSCORES')
local answer = {}
for place = 1, #found, 2 do
  local id = found[place]
  answer[#answer + 1] = id
  answer[#answer + 1] = string.format('%.0f', math.max(0, now - tonumber(found[place + 1])))
  answer[#answer + 1] = redis.call('HGET', KEYS[2], id) or 'unknown'
  answer[#answer + 1] = redis.call('GET', ARGV[2] .. id) or ''
end
return answer
