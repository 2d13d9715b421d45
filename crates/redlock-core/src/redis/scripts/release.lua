-- KEYS 1: the lock.  ARGV 1: the token.
-- Returns 1 if the key was ours and is deleted, and 0 if it was not ours or has another type.
-- Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value
end
return 0
