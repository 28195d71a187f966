-- Returns the value of a key and its remaining TTL in ms; nothing if there is none; 0 if it is not a string or too
-- long.
-- KEYS: the key. ARGV: the limit of its size in bytes.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'none' then
    return false
end
if kind ~= 'string' or redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[1]) then
    return 0
end
return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) }
