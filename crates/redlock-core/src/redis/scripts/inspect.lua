-- KEYS 1: the lock.
-- Returns {value, PTTL}; the value is nil when nobody holds it.
local value = redis.call('GET', KEYS[1])
if not value then return {false, -2} end
return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
