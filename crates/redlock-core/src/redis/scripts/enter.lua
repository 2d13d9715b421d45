-- ARGV 1: the ticket, 2: the token or empty, 3: milliseconds to live, 4: microseconds waited,
-- 5: milliseconds for the queue to live, 6: for a reservation, 7: how channels begin, 8: how many
-- tickets the queue may have.
-- Returns {1, waiters}: the key is ours; {0, waiters, rank or -1, value, PTTL}: it is not.
local ticket, token = ARGV[1], ARGV[2]
local ours = NEXT .. ticket

-- The key is set first, which fails if memory is full. If the queue fails then, no key is left.
local function take()
  call('SET', LOCK, token, 'PX', ARGV[3])
  local removed, waiters = redis.pcall('ZREM', QUEUE, ticket), redis.pcall('ZCARD', QUEUE)
  for _, reply in ipairs({removed, waiters}) do
    if type(reply) == 'table' then
      call('DEL', LOCK)
      return reply
    end
  end
  return {1, waiters}
end

if token ~= '' and (value == ours or not value and not head()) then return take() end

local has_room = call('ZCARD', QUEUE) < tonumber(ARGV[8]) or call('ZSCORE', QUEUE, ticket)
if value ~= ours and has_room then
  local time = call('TIME')
  local since = time[1] * 1000000 + time[2] - ARGV[4]
  -- A client without the right to read or shorten the queue fails now, before it waits in vain.
  head()
  call('ZADD', QUEUE, string.format('%.0f', since), ticket)
  call('ZREM', QUEUE, '')
  call('PEXPIRE', QUEUE, ARGV[5])
end
if not value then
  local next_one = first(ARGV[7], ticket)
  if next_one == ticket and token ~= '' then return take() end
  if next_one and next_one ~= ticket and hand_to(next_one, ARGV[7], ARGV[6]) then
    value = NEXT .. next_one
  end
end
local shown = type(value) == 'string' and string.sub(value, 1, 512)
return {0, call('ZCARD', QUEUE), call('ZRANK', QUEUE, ticket) or -1, shown, call('PTTL', LOCK)}
