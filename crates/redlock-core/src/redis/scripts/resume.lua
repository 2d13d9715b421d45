-- KEYS 1: the lock, 2: the ballot set.
-- ARGV 1: the token, 2: milliseconds to live. Behind them what ZADD gets: its options, the ballot
-- and, last of all, the member.
-- Returns {1, reply of ZADD, reply of ZSCORE}: ours, and lives at least that long; 0: no such key;
-- {value, PTTL}: another's. Nothing is written where the key is not ours.
-- The value of a key of another type is nil. Any other error of GET is the answer.
-- Never shortens. The ballot comes behind the extension: what accepted it holds the key since then.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  local raised = redis.pcall('ZADD', KEYS[2], unpack(ARGV, 3))
  return {1, raised, redis.pcall('ZSCORE', KEYS[2], ARGV[#ARGV])}
end
