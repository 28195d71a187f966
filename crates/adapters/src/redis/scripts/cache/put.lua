-- Stores a value if the key holds what it held when it was looked up. Returns 1 if so.
-- KEYS: the key. ARGV: what it held, the value, its lifetime in milliseconds.
if redis.call('TYPE', KEYS[1])['ok'] == 'none' then
    if ARGV[1] ~= '' then
        return 0
    end
elseif redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
