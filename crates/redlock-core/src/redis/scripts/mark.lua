-- KEYS 1: a mark, AT FIRE LABEL.
-- A key of another type, or a value that is not a mark, is an error, and nothing is written.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
local had = {}
if value then
  had.at, had.fire, had.label = string.match(value, '^(%d+) (%d+) ([%w._@:%-]+)$')
  local function fits(digits) return #digits <= 16 and tonumber(digits) < 9007199254740992 end
  if not had.at or not fits(had.at) or not fits(had.fire) or #had.label > 64 then
    return redis.error_reply('ERR the mark is malformed, remove it: '
      .. 'redlock release --force --mark NAME')
  end
end
