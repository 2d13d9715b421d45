-- KEYS 1: a queue that never exists.  ARGV 1: a channel without subscribers.
-- Tries every command of a release and of the queue scripts without changing anything.
-- Returns 1, or each failed command followed by its error.
local queue, channel, failed = KEYS[1], ARGV[1], {}
for _, tried in ipairs({
  {'GET', queue}, {'DEL', queue},
  {'ZRANGE', queue, 0, 0}, {'ZRANK', queue, 0}, {'ZREM', queue, 0},
  {'ZCARD', queue}, {'ZSCORE', queue, 0}, {'ZADD', queue, 'XX', 0, 0}, {'PEXPIRE', queue, 1},
  {'TIME'}, {'PUBSUB', 'NUMSUB', channel}, {'PUBLISH', channel, ''},
}) do
  local said = redis.pcall(unpack(tried))
  if type(said) == 'table' and said.err then
    failed[#failed + 1] = tried[1]
    failed[#failed + 1] = said.err
  end
end
return #failed > 0 and failed or 1
