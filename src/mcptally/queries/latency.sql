-- How long do calls take, per tool?
-- Shows: server, tool, calls, p50_ms, p95_ms, p99_ms, slowest_ms, slowest_call
SELECT
    server, tool,
    count(latency_ms) AS calls,
    count(DISTINCT session) AS sessions,
    quantile_cont(latency_ms, 0.50) AS p50_ms,
    quantile_cont(latency_ms, 0.95) AS p95_ms,
    quantile_cont(latency_ms, 0.99) AS p99_ms,
    max(latency_ms) AS slowest_ms,
    arg_max(call_id, latency_ms) AS slowest_call,
    quantile_cont(first_progress_ms, 0.50) AS first_progress_p50_ms
FROM calls
WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
GROUP BY ALL
ORDER BY p95_ms DESC, server, tool
