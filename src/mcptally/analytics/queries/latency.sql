-- How long do calls to each tool take?
-- Shows: server, tool, calls, latency_p50_ms, latency_p95_ms, latency_p99_ms, latency_max_ms, call_id
-- None: No call to a tool was answered.
WITH timed AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS tool_hash
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
),
sums AS (
    SELECT
        tool_hash, any_value(server) AS server, any_value(tool) AS tool,
        count(latency_ms) AS calls,
        quantile_cont(latency_ms, [0.50, 0.95, 0.99]) AS q,
        max(latency_ms) AS latency_max_ms,
        arg_max(call_id, (latency_ms, call_id)) AS call_id,
        quantile_cont(first_progress_ms, 0.50) AS first_progress_p50_ms
    FROM timed
    GROUP BY tool_hash
),
-- A separate query: a count(DISTINCT) next to the other aggregates would keep all rows in memory.
session_counts AS (
    SELECT tool_hash, count(*) AS sessions
    FROM (
        SELECT any_value(tool_hash) AS tool_hash FROM timed
        GROUP BY hash(tool_hash, hash(session))
    )
    GROUP BY tool_hash
)
SELECT
    server, tool, calls, sessions, q[1] AS latency_p50_ms, q[2] AS latency_p95_ms, q[3] AS latency_p99_ms,
    latency_max_ms, call_id, first_progress_p50_ms
FROM sums
JOIN session_counts USING (tool_hash)
ORDER BY latency_p95_ms DESC, server, tool
