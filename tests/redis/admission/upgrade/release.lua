-- KEYS 1: the lock.  ARGV 1: the token.
-- Returns 1: it was ours and is gone; 0: it was not ours.
-- A key of another type is another's: the error that GET makes of it is no token.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
