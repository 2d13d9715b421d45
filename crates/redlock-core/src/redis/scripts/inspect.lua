-- KEYS 1: the lock.
-- Returns {value, PTTL}, or 0 if the key is missing.
-- The value of a key of another type is nil. Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
