-- Replaces the values of keys with a mark that matches no earlier ticket. Leaves foreign content unchanged.
-- KEYS: the keys. ARGV: the mark, its TTL in ms, the prefix of everything that the cache writes.
for _, key in ipairs(KEYS) do
    local kind = redis.call('TYPE', key)['ok']
    local is_ours = kind == 'string' and redis.call('GETRANGE', key, 0, #ARGV[3] - 1) == ARGV[3]
    if kind == 'none' or is_ours then
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    end
end
return 1
