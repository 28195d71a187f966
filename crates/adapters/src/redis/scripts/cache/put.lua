-- Stores a value if the key still holds what the lookup found. Returns 1 if it was stored.
-- KEYS: the key. ARGV: what the lookup found, the value, its TTL in ms.
if redis.call('TYPE', KEYS[1])['ok'] == 'none' then
    if ARGV[1] ~= '' then
        return 0
    end
elseif redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
