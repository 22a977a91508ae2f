-- How long do calls take, per tool?
-- Shows: server, tool, calls, p50_ms, p95_ms, p99_ms, slowest_ms, slowest_call
WITH timed AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS kind
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
),
sums AS (
    SELECT
        kind, any_value(server) AS server, any_value(tool) AS tool,
        count(latency_ms) AS calls,
        quantile_cont(latency_ms, [0.50, 0.95, 0.99]) AS q,
        max(latency_ms) AS slowest_ms,
        arg_max(call_id, latency_ms) AS slowest_call,
        quantile_cont(first_progress_ms, 0.50) AS first_progress_p50_ms
    FROM timed
    GROUP BY kind
),
-- Apart from the rest: where anything is counted once, DuckDB keeps all rows that are counted.
visits AS (
    SELECT kind, count(*) AS sessions
    FROM (SELECT any_value(kind) AS kind FROM timed GROUP BY hash(kind, hash(session)))
    GROUP BY kind
)
SELECT
    server, tool, calls, sessions, q[1] AS p50_ms, q[2] AS p95_ms, q[3] AS p99_ms,
    slowest_ms, slowest_call, first_progress_p50_ms
FROM sums
JOIN visits USING (kind)
ORDER BY p95_ms DESC, server, tool
