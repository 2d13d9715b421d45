if not value then return 0 end
if type(value) == 'string' then
  return {string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
end
if string.find(value.err, 'WRONGTYPE', 1, true) then
  return {false, redis.call('PTTL', KEYS[1])}
end
return value
