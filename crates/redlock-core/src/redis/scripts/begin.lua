-- ARGV 1 to 4: the record as it was read, see `is_as_read`. 5: the identity, 6: the new nonce,
-- 7: `max_ttl`, 8: 1 if the client knows that the record is outdated.
local identity, nonce, is_outdated = ARGV[5], ARGV[6], ARGV[8] == '1'

local function write()
  local names = {identity, fields['run']}
  if has_quarantine then names[#names + 1] = fields['q:id'] end
  local found, sets = ballot or 0, {}
  for at, name in ipairs(names) do
    found = math.max(found, highest_of(name))
    sets[at] = set_of(name)
  end
  test_rights(identity)
  local longest = math.max(max_ttl or 0, tonumber(ARGV[7]))
  call('HSET', RECORD, 'max_ttl', text(longest), 'q:nonce', nonce, 'q:id', identity,
    'q:until', text(time + length_of(longest)), 'q:ballot', text(found))
  remove_fields('run')
  call('DEL', unpack(sets))
end

-- Happens once, because the record then has the larger value.
local function lengthen()
  local longest = tonumber(ARGV[7])
  local more = length_of(longest) - length_of(max_ttl)
  if more > 0 then
    call('HSET', RECORD, 'max_ttl', text(longest), 'q:until', text(ends_at + more))
  end
end

local function decide()
  if is_mixed then return answer(MIXED) end
  if is_admitted(identity) and not is_outdated then return answer(DONE) end
  if not is_as_read() then return answer(MOVED) end
  local is_waiting = is_quarantined(identity) and ends_at <= time + length_of(max_ttl)
  if is_waiting and not is_outdated then lengthen() else write() end
  return answer(DONE)
end
