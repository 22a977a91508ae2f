-- How do latencies spread, per tool: how many calls took from how long to how long?
-- Shows: server, tool, from_ms, to_ms, calls, share
-- Two bins to each doubling, so that a second hump (a cache, a time-out) can be seen.
WITH binned AS (
    SELECT server, tool, floor(2 * log2(greatest(latency_ms, 0.001)))::INTEGER AS bin
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
)
SELECT
    server, tool, 2 ** (bin / 2) AS from_ms, 2 ** ((bin + 1) / 2) AS to_ms, count(*) AS calls,
    count(*) / sum(count(*)) OVER (PARTITION BY server, tool) AS share, bin
FROM binned
GROUP BY server, tool, bin
ORDER BY server, tool, bin
