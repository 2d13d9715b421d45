-- KEYS 1: the lock.
-- Returns {value, PTTL}; the value is nil when nobody holds it.
-- A key of another type is another's: the error that GET makes of it stands for its value.
local value = redis.pcall('GET', KEYS[1])
if not value then return {false, -2} end
if type(value) == 'table' then value = value.err end
return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
