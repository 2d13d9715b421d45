-- ARGV 1: the nonce, followed by the process and its TIME for each note.
local function decide()
  if not has_quarantine or fields['q:nonce'] ~= ARGV[1] then return answer(MOVED) end
  local notes = {}
  for at = 2, #ARGV, 2 do
    local field = 'q:note:' .. ARGV[at]
    local noted = number(field)
    if not noted or noted > tonumber(ARGV[at + 1]) then
      notes[#notes + 1] = field
      notes[#notes + 1] = ARGV[at + 1]
    end
  end
  if #notes > 0 then call('HSET', RECORD, unpack(notes)) end
  return answer(DONE)
end
