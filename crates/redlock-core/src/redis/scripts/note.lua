-- ARGV 1: the nonce. Behind it, for each note, the process and its TIME.
local notes = {}
for at = 2, #ARGV, 2 do
  local field = 'q:note:' .. ARGV[at]
  local noted = number(field)
  if not noted or noted > tonumber(ARGV[at + 1]) then
    notes[#notes + 1] = field
    notes[#notes + 1] = ARGV[at + 1]
  end
end

if failed then return failed end
if not has_quarantine or fields['q:nonce'] ~= ARGV[1] then return answer(MOVED) end
if #notes > 0 then redis.call('HSET', RECORD, unpack(notes)) end
return answer(DONE)
