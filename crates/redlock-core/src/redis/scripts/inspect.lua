-- KEYS 1: the lock.
-- Returns {value, PTTL}; 0 when there is no such key.
-- The value of a key of another type is nil. Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
