-- ARGV 1: the token or empty, 2: the ticket to give up or empty, 3: milliseconds for a reservation,
-- 4: the start of channel names, 5: done, open or undo.
-- Returns {1, waiters} if the key was ours and is deleted, and {0, waiters} if it was not ours.
-- If the queue fails, our key is still deleted, and one waiter is reported. Otherwise the holder
-- would not learn that the queue fails.
local token, ticket, channels, leaving = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local function leave()
  local is_ours = token ~= '' and value == token
  local was_first = ticket ~= '' and head() == ticket
  if ticket ~= '' then call('ZREM', QUEUE, ticket) end

  local is_for_us = ticket ~= '' and value == NEXT .. ticket
  local is_free = is_ours or is_for_us or not value or value == NEXT
  if is_free and leaving ~= 'open' then
    local next_one = first(channels)
    if next_one and hand_to(next_one, channels, ARGV[3]) then
      local second = head()
      if second then tell(second, channels, 'next') end
      return {is_ours and 1 or 0, 1 + call('ZCARD', QUEUE)}
    end
  end
  if is_free and value then call('DEL', LOCK) end
  local is_anothers = not is_free and
    (value == true or string.sub(value, 1, #NEXT) ~= NEXT)
  if leaving == 'open' or leaving == 'done' and is_anothers then
    local next_one = head()
    if next_one then tell(next_one, channels, 'try') end
  elseif was_first and not is_free then
    -- Only the first ticket watches the key, because a holder without known waiters calls none. The
    -- new one queries immediately, or after the reservation if the key is reserved.
    local next_one = first(channels)
    if next_one then tell(next_one, channels, is_anothers and 'try' or 'next') end
  end
  return {is_ours and 1 or 0, call('ZCARD', QUEUE)}
end

local is_done, reply = pcall(leave)
if is_done then return reply end
if token ~= '' and redis.pcall('GET', LOCK) == token then
  call('DEL', LOCK)
  return {1, 1}
end
return {0, 1}
