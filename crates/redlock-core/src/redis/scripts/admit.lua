-- ARGV 1: the nonce, 2: the identity, 3: how many lengths TIME must be past the end, 4: the floor,
-- 5 and 6: the fields `set` and `names`, empty to leave them unchanged.
local function decide()
  local nonce, identity, lengths, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  if not is_quarantined(identity) then return answer(MOVED) end
  if is_mixed then return answer(MIXED) end
  if fields['q:nonce'] ~= nonce then return answer(MOVED) end
  if time < ends_at + lengths * length_of(max_ttl) then return answer(EARLY) end
  if tonumber(floor) >= SCORE_END then return answer(TOO_LARGE) end
  test_rights(fields['q:id'])
  -- Writes the present value, to test the right to HSET first.
  call('HSET', RECORD, 'q:nonce', nonce)
  write_masters(ARGV[5], ARGV[6])
  write_set(fields['q:id'], floor)
  call('HSET', RECORD, 'floor', floor, 'run', fields['q:id'])
  remove_fields('q:id', 'q:until', 'q:ballot')
  return answer(DONE)
end
