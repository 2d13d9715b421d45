-- ARGV 1 to 3: `run`, `q:id` and `q:nonce` as they were read, empty where missing. 4: the identity,
-- 5: the new nonce, 6: `max_ttl`, 7: 1 where it may become smaller, 8: the floor, 9: the level,
-- 10: 1 where the ballots of clients without quarantine are taken over.
local identity, floor, level = ARGV[4], ARGV[8], ARGV[9]
local longest

-- No member is ever lowered.
local function lift()
  test_rights(fields['run'])
  if longest ~= max_ttl then call('HSET', RECORD, 'max_ttl', text(longest)) end
  if tonumber(level) > 0 then
    call('ZADD', set_of(fields['run']), 'XX', 'GT', every_member(level))
  end
end

local function admit()
  test_rights(identity)
  call('HSET', RECORD, 'max_ttl', text(longest))
  write_set(identity, floor)
  call('HSET', RECORD, 'floor', floor, 'q:nonce', ARGV[5], 'run', identity)
  remove_fields('q:id', 'q:until', 'q:ballot')
  for _, former in ipairs({fields['run'] or identity, fields['q:id'] or identity}) do
    if set_of(former) ~= set_of(identity) then call('DEL', set_of(former)) end
  end
end

local function decide()
  -- It may be removed: its type is tested before the first write.
  members_of(fields['q:id'])
  if is_mixed and ARGV[10] ~= '1' then return answer(MIXED) end
  if not is_as_read(ARGV[1], ARGV[2], ARGV[3]) then return answer(MOVED) end
  if math.max(tonumber(floor), tonumber(level)) >= SCORE_END then return answer(TOO_LARGE) end
  longest = tonumber(ARGV[6])
  if ARGV[7] ~= '1' then longest = math.max(longest, max_ttl or 0) end
  if is_mixed then
    local found = highest_in(OFF)
    floor, level = text(math.max(tonumber(floor), found)), text(math.max(tonumber(level), found))
  end
  if is_admitted(identity) then lift() else admit() end
  if is_mixed then call('DEL', OFF) end
  return answer(DONE)
end
