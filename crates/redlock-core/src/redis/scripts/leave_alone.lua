-- Most released keys have no queue, so that is tested first. The queue needs the right to ZCARD
-- anyway.
if ARGV[1] ~= '' and redis.pcall('GET', KEYS[1]) == ARGV[1]
  and redis.pcall('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1, 0}
end
