-- Which calls took longest: the ten slowest of each tool, also as multiples of its median?
-- Shows: server, tool, latency_ms, times_median, outcome, response_bytes, requested_at, call_id
-- None: No call to a tool was answered.
WITH timed AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS tool_hash FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
),
usual AS MATERIALIZED (
    SELECT
        tool_hash, count(*) AS calls, median(latency_ms) AS median_ms,
        list_min(max(latency_ms, 10)) AS tenth_ms
    FROM timed
    GROUP BY tool_hash
)
SELECT
    t.server, t.tool, t.latency_ms,
    t.latency_ms / nullif(median_ms, 0) AS times_median,
    u.calls,
    row_number() OVER (PARTITION BY tool_hash ORDER BY t.latency_ms DESC, t.call_id) AS rank,
    t.outcome, t.verdict, t.request_bytes, t.response_bytes, t.first_progress_ms, t.progress_count,
    t.requested_at, t.client, t.session, t.call_id
FROM timed t
JOIN usual u USING (tool_hash)
WHERE t.latency_ms >= u.tenth_ms
QUALIFY rank <= 10
ORDER BY t.latency_ms DESC, t.call_id
