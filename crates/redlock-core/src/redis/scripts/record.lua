-- The code that begin, note, admit, init and remove share. Each works like `Data` in Rust.
-- KEYS 1: the record, 2: the ballot set of clients without quarantine. The names of all other
-- ballot sets begin with its name.
-- All reads and tests of types precede the first write, because Redis rolls nothing back.
-- Each of the five defines `decide`, which `finish.lua` calls unless it is too late: the first
-- argument is the TIME until which the script may act. `decide` finds the others in ARGV.
-- Scores and milliseconds are formatted as integers, because Lua would write large ones as 1e+15.
local RECORD, OFF = KEYS[1], KEYS[2]
local UNTIL = tonumber(table.remove(ARGV, 1))
local DONE, MOVED, EARLY, MIXED, TOO_LARGE, LATE = 0, 1, 2, 3, 4, 5
local MEMBERS, SCORE_END = 1024, 9007199254740992
-- The reply with which the script stops. The function that stops it sets this and raises an error.
local failed

local function stop(reply)
  failed = reply
  error('stop')
end

-- The errors for missing rights inside a script, by server version.
local function is_denial(error)
  for _, words in ipairs({'NOPERM', 'ACL failure', "can't run this command", "can't access"}) do
    if string.find(error, words, 1, true) then return true end
  end
  return false
end

-- Redis does not report which key has the wrong type, or which command is denied.
local function call(command, ...)
  local found = redis.pcall(command, ...)
  if type(found) ~= 'table' or not found.err then return found end
  if string.find(found.err, 'WRONGTYPE', 1, true) then
    stop(redis.error_reply('WRONGTYPE the key ' .. select(1, ...) .. ' is of another type'))
  end
  if is_denial(found.err) then
    stop(redis.error_reply('NOPERM this user has no permissions to run ' .. command
      .. ' on the keys of admission'))
  end
  stop(found)
end

local function fields_of(flat)
  local fields = {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

-- The data read before anything is decided.
local fields, is_mixed, max_ttl, has_quarantine, ends_at, ballot, members, time

-- Returns the field as a number, or nil if it is missing.
local function number(field)
  local found = fields[field]
  if not found then return nil end
  if string.match(found, '^%d+$') and tonumber(found) < SCORE_END then return tonumber(found) end
  stop(redis.error_reply('ERR the record has a malformed field ' .. field))
end

local function text(number) return string.format('%.0f', number) end

local function set_of(id)
  local colon = string.find(id, ':', 1, true)
  local name = OFF .. ':' .. string.sub(id, 1, 16)
  if colon then name = name .. '.' .. string.sub(id, colon + 1, colon + 16) end
  return name
end

local function members_of(id)
  return id and call('ZCARD', set_of(id)) or 0
end

-- Returns the highest score below 2^53, or 0.
local function highest_in(name)
  local found = call('ZREVRANGEBYSCORE', name, '(' .. text(SCORE_END), '-inf',
    'WITHSCORES', 'LIMIT', 0, 1)
  return found[2] and math.max(0, math.ceil(tonumber(found[2]))) or 0
end

local function highest_of(id) return highest_in(set_of(id)) end

-- A record of a former replica also covers the same process without a history.
local function covers(recorded, present)
  return recorded == present or string.sub(recorded, 1, 41) == present .. ':'
end

local function length_of(max_ttl) return max_ttl + math.floor(max_ttl / 10) end

-- Returns true if the record is unchanged since the client read it: ARGV 1 to 4 are its `run`,
-- `q:id`, `q:nonce` and `max_ttl`, empty if missing.
local function is_as_read()
  return (fields['run'] or '') == ARGV[1] and (fields['q:id'] or '') == ARGV[2]
    and (fields['q:nonce'] or '') == ARGV[3] and max_ttl == tonumber(ARGV[4])
end

local function every_member(score)
  local scored = {}
  for member = 0, MEMBERS - 1 do
    scored[#scored + 1] = score
    scored[#scored + 1] = member
  end
  return unpack(scored)
end

-- Stops before the first write if a writing command is denied, or the key of the set has the wrong
-- type. The commands change nothing, because there is no such member, field or key. HSET has no
-- harmless form, so it is the first write of each script.
local function test_rights(id)
  call('ZADD', set_of(id), 'XX', 0, 'none')
  call('HDEL', RECORD, 'none')
  call('DEL', OFF .. ':none')
end

local function write_set(id, score)
  local name = set_of(id)
  call('ZADD', name, every_member(score))
  -- A different client has added members.
  if call('ZCARD', name) ~= MEMBERS then
    call('DEL', name)
    call('ZADD', name, every_member(score))
  end
end

-- Removes these fields and all notes.
local function remove_fields(...)
  local names = {...}
  for field in pairs(fields) do
    if string.sub(field, 1, 7) == 'q:note:' then names[#names + 1] = field end
  end
  call('HDEL', RECORD, unpack(names))
end

-- Only `admit` and `init` write these two fields, and only `remove` removes them. Equal
-- values are not written again.
local function write_masters(set, names)
  if set == '' or (fields['set'] == set and fields['names'] == names) then return end
  call('HSET', RECORD, 'set', set, 'names', names)
end

local function look()
  fields = fields_of(call('HGETALL', RECORD))
  is_mixed = call('ZCARD', OFF) > 0
  max_ttl = number('max_ttl')
  has_quarantine = fields['q:id'] ~= nil
  if has_quarantine then
    -- These fields exist only together.
    fields['q:until'] = fields['q:until'] or 'missing'
    fields['q:ballot'] = fields['q:ballot'] or 'missing'
    ends_at, ballot = number('q:until'), number('q:ballot')
  end
  members = members_of(fields['run'])
  time = call('TIME')
  time = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Returns true if a quarantine of this identity is under way. Without `max_ttl` it has no length.
local function is_quarantined(identity)
  return has_quarantine and max_ttl and covers(fields['q:id'], identity)
end

local function is_admitted(identity)
  return fields['run'] and covers(fields['run'], identity) and members == MEMBERS
end

local function answer(outcome)
  local flat = call('HGETALL', RECORD)
  local run = fields_of(flat)['run']
  return {outcome, text(time), flat, run and call('ZCARD', set_of(run)) or 0}
end
