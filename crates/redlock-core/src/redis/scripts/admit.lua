-- ARGV 1: the nonce, 2: the identity, 3: by how many lengths TIME must pass the end, 4: the floor.
local identity = ARGV[2]

if failed then return failed end
if not is_quarantined(identity) then return answer(MOVED) end
if is_mixed then return answer(MIXED) end
if fields['q:nonce'] ~= ARGV[1] then return answer(MOVED) end
if time < ends_at + tonumber(ARGV[3]) * length_of(max_ttl) then return answer(EARLY) end
if tonumber(ARGV[4]) >= SCORE_END then return answer(TOO_LARGE) end
members_of(fields['q:id'])
if failed then return failed end
write_set(fields['q:id'], ARGV[4])
redis.call('HSET', RECORD, 'floor', ARGV[4], 'run', fields['q:id'])
remove_fields('q:id', 'q:until', 'q:ballot')
return answer(DONE)
