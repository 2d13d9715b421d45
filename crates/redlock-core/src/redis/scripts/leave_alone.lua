-- Most keys that are released have no queue: that is found out before anything else is done. ZCARD
-- is a command that the queue needs anyway.
if ARGV[1] ~= '' and redis.pcall('GET', KEYS[1]) == ARGV[1]
  and redis.pcall('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1, 0}
end
