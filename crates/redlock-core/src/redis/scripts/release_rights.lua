-- KEYS 1: a key that never exists.
-- Tries every command of a release without changing anything. Returns 1, or each failed command
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
