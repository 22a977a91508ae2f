-- How are the latencies of each tool distributed?
-- Shows: server, tool, from_ms, to_ms, calls, share
-- None: No call to a tool was answered.
-- Two bins per doubling are fine enough to show a second peak, as a cache or a time-out makes.
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
