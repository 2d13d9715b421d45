-- ARGV 1 to 3: `run`, `q:id` and `q:nonce` as they were read, empty where missing. 4: the identity,
-- 5: the new nonce, 6: `max_ttl`.
local identity, nonce = ARGV[4], ARGV[5]

local function write()
  local names = {identity, fields['run']}
  if has_quarantine then names[#names + 1] = fields['q:id'] end
  local found, sets = ballot or 0, {}
  for at, name in ipairs(names) do
    found = math.max(found, highest_of(name))
    sets[at] = set_of(name)
  end
  test_rights(identity)
  local longest = math.max(max_ttl or 0, tonumber(ARGV[6]))
  call('HSET', RECORD, 'max_ttl', text(longest), 'q:nonce', nonce, 'q:id', identity,
    'q:until', text(time + length_of(longest)), 'q:ballot', text(found))
  remove_fields('run')
  call('DEL', unpack(sets))
end

-- Once: the record says it then.
local function lengthen()
  local longest = tonumber(ARGV[6])
  local more = length_of(longest) - length_of(max_ttl)
  if more > 0 then
    call('HSET', RECORD, 'max_ttl', text(longest), 'q:until', text(ends_at + more))
  end
end

local function decide()
  if is_mixed then return answer(MIXED) end
  if is_admitted(identity) then return answer(DONE) end
  if not is_as_read(ARGV[1], ARGV[2], ARGV[3]) then return answer(MOVED) end
  local is_waiting = is_quarantined(identity) and ends_at <= time + length_of(max_ttl)
  if is_waiting then lengthen() else write() end
  return answer(DONE)
end
