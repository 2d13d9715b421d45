-- KEYS 1: the lock.  ARGV 1: the token, 2: milliseconds to live.
-- Returns OK if the key was free or reserved, and is now ours. Otherwise {value, PTTL} of another
-- client's key.
-- The value of a key of another type is nil. Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
local NEXT = 'redlock-quorum:next:'
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {false, redis.call('PTTL', KEYS[1])}
end
if not value or string.sub(value, 1, #NEXT) == NEXT then
  return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
