-- KEYS 1: the lock.  ARGV 1: the token, 2: milliseconds to live.
-- Returns 1 if the key is ours and lives at least that long, 0 if it is missing, and {value, PTTL}
-- of another client's key.
-- The value of a key of another type is nil. Any other error of GET is the answer.
-- Never shortens the expiry, so that an extension that reaches few masters costs no time there.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 1
end
