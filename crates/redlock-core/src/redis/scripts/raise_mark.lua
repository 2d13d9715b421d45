-- ARGV 1: AT, 2: FIRE, 3: the label, 4: milliseconds to live.
-- Returns 1: the mark is at least that large, and lives at least that long.
-- AT and FIRE are raised separately and never fall. The label belongs to the largest AT.
local at, fire, label, px = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if value then
  if tonumber(had.at) >= tonumber(at) then at, label = had.at, had.label end
  if tonumber(had.fire) > tonumber(fire) then fire = had.fire end
  px = math.max(px, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], at .. ' ' .. fire .. ' ' .. label, 'PX', string.format('%.0f', px))
return 1
