-- KEYS 1: the lock.  ARGV 1: the token, 2: milliseconds to live.
-- Returns 1: ours, and lives at least that long; 0: no such key; {value, PTTL}: another's.
-- Never shortens: an extension that reaches a few masters only must not cost the others time.
-- A key of another type is another's: the error that GET makes of it stands for its value.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 1
end
if not value then return 0 end
if type(value) == 'table' then value = value.err end
return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
