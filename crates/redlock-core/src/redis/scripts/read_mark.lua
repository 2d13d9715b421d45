-- Returns {mark, seconds, microseconds}: the mark, or nil, and TIME.
local time = redis.call('TIME')
return {value, time[1], time[2]}
