-- KEYS 1: the lock.  ARGV 1: the token, 2: milliseconds to live.
-- Returns 1: ours, and lives at least that long; 0: no such key; {value, PTTL}: another's.
-- The value of a key of another type is nil. Any other error of GET is the answer.
-- Never shortens: an extension that reaches a few masters only must not cost the others time.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 1
end
