-- KEYS 1: the lock.
-- Returns {value, PTTL}; 0 when there is no such key.
-- The value of a key of another type is nil. Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if type(value) == 'string' then
  return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
end
if string.find(value.err, 'WRONGTYPE', 1, true) then
  return {false, redis.call('PTTL', KEYS[1])}
end
return value
