-- Which calls took longest: the ten slowest of each tool, and how many times its median is that?
-- Shows: server, tool, latency_ms, times_median, outcome, response_bytes, requested_at, call_id
WITH timed AS (
    SELECT
        server, tool, latency_ms,
        -- A median of two calls is their middle; alone, a call is its own.
        latency_ms / nullif(median(latency_ms) OVER of_tool, 0) AS times_median,
        count(*) OVER of_tool AS calls,
        row_number() OVER (PARTITION BY server, tool ORDER BY latency_ms DESC, call_id) AS rank,
        outcome, verdict, request_bytes, response_bytes, first_progress_ms, progress_count,
        requested_at, client, session, call_id
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND latency_ms IS NOT NULL
    WINDOW of_tool AS (PARTITION BY server, tool)
)
SELECT * FROM timed WHERE rank <= 10 ORDER BY latency_ms DESC, call_id
