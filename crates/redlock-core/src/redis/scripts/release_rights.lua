-- KEYS 1: a key that is never there.
-- Tries all that a release does. Nothing is changed. Returns 1, or each command that fails,
-- followed by its error.
local failed = {}
for _, command in ipairs({'GET', 'DEL'}) do
  local said = redis.pcall(command, KEYS[1])
  if type(said) == 'table' and said.err then
    failed[#failed + 1] = command
    failed[#failed + 1] = said.err
  end
end
return #failed > 0 and failed or 1
