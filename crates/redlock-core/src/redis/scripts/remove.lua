-- ARGV 1 to 4: the record as it was read, see `is_as_read`. 5: the smallest score of members
-- without quarantine, or empty to remove only a record that was never admitted.
local start = tonumber(ARGV[5])

local function decide()
  local names, keys, highest = {}, {RECORD}, math.max(ballot or 0, number('floor') or 0)
  for _, field in ipairs({'run', 'q:id'}) do names[#names + 1] = fields[field] end
  for _, name in ipairs(names) do
    highest = math.max(highest, highest_of(name))
    keys[#keys + 1] = set_of(name)
  end
  if not is_as_read() then return answer(MOVED) end
  if not start and (fields['run'] or fields['floor']) then return answer(MOVED) end
  if start and start >= SCORE_END then return answer(TOO_LARGE) end
  -- DEL comes last. Everything that could stop it is tested before the first write.
  call('DEL', OFF .. ':none')
  if start then
    highest = math.max(highest, start, highest_in(OFF))
    call('ZADD', OFF, 'GT', every_member(text(highest)))
  end
  call('DEL', unpack(keys))
  return answer(DONE)
end
