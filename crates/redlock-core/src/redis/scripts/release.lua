-- KEYS 1: the lock.  ARGV 1: the token.
-- Returns 1: it was ours and is gone; 0: it was not ours, such as a key of another type.
-- Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value
end
return 0
