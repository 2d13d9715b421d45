-- KEYS 1: the lock.  ARGV 1: the token, 2: milliseconds for the reservation.
-- Returns 1 if the key was ours, and is now reserved (or free, if memory is full), and 0 if it was
-- not ours.
-- Any other error of GET is the answer.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  local said = redis.pcall('SET', KEYS[1], 'redlock-quorum:next:', 'PX', ARGV[2])
  if not said.ok then redis.call('DEL', KEYS[1]) end
  return 1
end
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
  return value
end
return 0
