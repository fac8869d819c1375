-- Counts one request in every counter of KEYS, or in none when one of them is used up. ARGV holds, for each, the
-- milliseconds between two requests and how many may come at once. Answers with the milliseconds until each is free.
-- The time is the server's: the clocks of gateways differ.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waits, dues, refused = {}, {}, false
for index, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2 * index - 1]), tonumber(ARGV[2 * index])
  local tolerance = interval * (burst - 1)
  local due = tonumber(redis.call('GET', key) or '') or now
  -- Nothing is ever due later than that: the clock was set back.
  if due < now or due - now > tolerance + interval then due = now end
  waits[index] = math.max(due - now - tolerance, 0)
  dues[index] = due + interval
  refused = refused or waits[index] > 0
end
if not refused then
  for index, key in ipairs(KEYS) do
    redis.call('SET', key, string.format('%.0f', dues[index]), 'PX', dues[index] - now)
  end
end
return waits
