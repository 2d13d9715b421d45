-- KEYS 1: a key that is never there.
-- Tries all that a release does. Nothing is changed. Returns 1, or the first error.
for _, command in ipairs({'GET', 'DEL'}) do
  local said = redis.pcall(command, KEYS[1])
  if type(said) == 'table' and said.err then return {command, said.err} end
end
return 1
