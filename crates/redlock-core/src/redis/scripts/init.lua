-- ARGV 1 to 4: the record as it was read, see `is_as_read`. 5: the identity, 6: the new nonce,
-- 7: `max_ttl`, 8: 1 if it may become smaller, 9: the floor, 10: the level,
-- 11: 1 to take over the ballots of clients without quarantine, 12 and 13: the fields `set`
-- and `names`, empty to leave them unchanged, 14: the field `set` as it was read.
local identity, floor, level = ARGV[5], ARGV[9], ARGV[10]
local longest

-- No member is ever lowered.
local function lift()
  test_rights(fields['run'])
  write_masters(ARGV[12], ARGV[13])
  if longest ~= max_ttl then call('HSET', RECORD, 'max_ttl', text(longest)) end
  if tonumber(level) > 0 then
    call('ZADD', set_of(fields['run']), 'XX', 'GT', every_member(level))
  end
end

local function admit()
  test_rights(identity)
  call('HSET', RECORD, 'max_ttl', text(longest))
  write_masters(ARGV[12], ARGV[13])
  write_set(identity, floor)
  call('HSET', RECORD, 'floor', floor, 'q:nonce', ARGV[6], 'run', identity)
  remove_fields('q:id', 'q:until', 'q:ballot')
  for _, former in ipairs({fields['run'] or identity, fields['q:id'] or identity}) do
    if set_of(former) ~= set_of(identity) then call('DEL', set_of(former)) end
  end
end

local function decide()
  -- This set may be removed later, so its type is tested before the first write.
  members_of(fields['q:id'])
  if is_mixed and ARGV[11] ~= '1' then return answer(MIXED) end
  if not is_as_read() then return answer(MOVED) end
  if ARGV[12] ~= '' and (fields['set'] or '') ~= ARGV[14] then return answer(MOVED) end
  if math.max(tonumber(floor), tonumber(level)) >= SCORE_END then return answer(TOO_LARGE) end
  longest = tonumber(ARGV[7])
  if ARGV[8] ~= '1' then longest = math.max(longest, max_ttl or 0) end
  if is_mixed then
    local found = highest_in(OFF)
    floor, level = text(math.max(tonumber(floor), found)), text(math.max(tonumber(level), found))
  end
  if is_admitted(identity) then lift() else admit() end
  if is_mixed then call('DEL', OFF) end
  return answer(DONE)
end
