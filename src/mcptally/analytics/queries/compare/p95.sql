-- The 95th percentile of latency on both sides, and its ratio.
-- The interval of the ratio combines the intervals of both sides by Newcombe's method on logarithms
-- (Zou and Donner 2008).
WITH calls AS (
    SELECT 'base' AS side, p.server, p.new_tool, session, latency_ms
    FROM base._tool_calls j
    JOIN pairs p ON p.server IS NOT DISTINCT FROM j.server AND p.base_tool = j.tool
    WHERE latency_ms IS NOT NULL AND presence IN ('both', 'renamed')
    UNION ALL
    SELECT 'new', p.server, p.new_tool, session, latency_ms
    FROM new._tool_calls j
    JOIN pairs p ON p.server IS NOT DISTINCT FROM j.server AND p.new_tool = j.tool
    WHERE latency_ms IS NOT NULL AND presence IN ('both', 'renamed')
),
session_latencies AS (
    SELECT side, server, new_tool, session, list(latency_ms) AS latencies FROM calls GROUP BY ALL
),
totals AS (
    SELECT
        side, server, new_tool, sum(len(latencies)) AS n, count(*) AS sessions,
        latency_quantiles(list(latencies), list(hash(session))) AS q,
        q[4] AS p95,
        ln(greatest(q[4], 0.001)) AS ln_p95,
        ln(greatest(q[5], 0.001)) AS ln_low,
        ln(greatest(q[6], 0.001)) AS ln_high
    FROM session_latencies
    GROUP BY ALL
)
SELECT
    'tool' AS level, b.server, n.new_tool AS tool, p.base_tool, 'latency_p95_ms' AS metric,
    'ratio' AS scale, b.p95 AS base, n.p95 AS new, n.p95 / nullif(b.p95, 0) AS change,
    exp(n.ln_p95 - b.ln_p95 - sqrt((n.ln_p95 - n.ln_low) ** 2 + (b.ln_high - b.ln_p95) ** 2))
        AS change_low,
    exp(n.ln_p95 - b.ln_p95 + sqrt((n.ln_high - n.ln_p95) ** 2 + (b.ln_p95 - b.ln_low) ** 2))
        AS change_high,
    NULL::DOUBLE AS p_value, NULL::DOUBLE AS q_value,
    'described' AS verdict, b.n AS base_calls, n.n AS new_calls,
    b.sessions AS base_sessions, n.sessions AS new_sessions, 1.0 AS calls_of_common_tools
FROM totals b
JOIN totals n
    ON n.side = 'new' AND n.server IS NOT DISTINCT FROM b.server AND n.new_tool = b.new_tool
JOIN pairs p ON p.server IS NOT DISTINCT FROM b.server AND p.new_tool = b.new_tool
WHERE b.side = 'base'
