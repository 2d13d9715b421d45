-- KEYS 1: the lock, 2: the queue, a sorted set of tickets, the longest wait first.
-- A reservation is the value NEXT .. ticket, or only NEXT. It is not a token.
local LOCK, QUEUE, NEXT = KEYS[1], KEYS[2], 'redlock-quorum:next:'
local call = redis.call

-- The value of a key of another type is true.
local value = redis.pcall('GET', LOCK)
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = true
end

local function head() return call('ZRANGE', QUEUE, 0, 0)[1] end

-- PUBLISH also counts subscribers by pattern, such as a monitor, which are not waiters.
local function listeners(channel) return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] end

local function tell(ticket, channels, word)
  return type(redis.pcall('PUBLISH', channels .. ticket, word .. ' ' .. LOCK)) == 'number'
end

-- Returns the first ticket that has a subscriber, or is `own`. Drops the tickets ahead of it, 64 at
-- most. Nil if there is none, or if the user lacks the right to count subscribers.
local function first(channels, own)
  for _ = 1, 64 do
    local ticket = head()
    if not ticket or ticket == own then return ticket end
    local count = listeners(channels .. ticket)
    if not count then return nil end
    if count > 0 then return ticket end
    call('ZREM', QUEUE, ticket)
  end
end

-- Calls this ticket and reserves the key for it. Returns true if the key is reserved.
local function hand_to(ticket, channels, px)
  if not tell(ticket, channels, 'go') then return false end
  call('ZREM', QUEUE, ticket)
  local said = redis.pcall('SET', LOCK, NEXT .. ticket, 'PX', px)
  return said.ok ~= nil
end
