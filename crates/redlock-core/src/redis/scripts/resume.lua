-- KEYS 1: the lock, 2: the ballot set.
-- ARGV 1: the token, 2: milliseconds to live, followed by the arguments of ZADD: its options, the
-- ballot and, last, the member.
-- Returns {1, reply of ZADD, reply of ZSCORE} if the key is ours and lives at least that long, 0 if
-- it is missing, and {value, PTTL} of another client's key, without writing anything.
-- The value of a key of another type is nil. Any other error of GET is the answer.
-- Never shortens the expiry. The ballot follows the extension, so a master that accepts it has the
-- key since then.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  local raised = redis.pcall('ZADD', KEYS[2], unpack(ARGV, 3))
  return {1, raised, redis.pcall('ZSCORE', KEYS[2], ARGV[#ARGV])}
end
