-- The 95th percentile of latency on both sides; its ratio by bootstrap over sessions.
WITH calls AS (
    SELECT 'base' AS side, p.server, p.new_tool, session, latency_ms
    FROM base._judged j
    JOIN pairs p ON p.server IS NOT DISTINCT FROM j.server AND p.base_tool = j.tool
    WHERE latency_ms IS NOT NULL AND presence IN ('both', 'renamed')
    UNION ALL
    SELECT 'new', p.server, p.new_tool, session, latency_ms
    FROM new._judged j
    JOIN pairs p ON p.server IS NOT DISTINCT FROM j.server AND p.new_tool = j.tool
    WHERE latency_ms IS NOT NULL AND presence IN ('both', 'renamed')
),
totals AS (
    SELECT
        side, server, new_tool, count(*) AS n, count(DISTINCT session) AS sessions,
        quantile_cont(latency_ms, 0.95) AS p95
    FROM calls
    GROUP BY ALL
),
bins AS (
    SELECT
        side, server, new_tool, (hash(session) % 200)::INTEGER AS cluster,
        floor(50 * ln(greatest(latency_ms, 0.001)))::INTEGER AS bin, count(*) AS n
    FROM calls
    SEMI JOIN (
        SELECT server, new_tool FROM totals GROUP BY ALL HAVING min(sessions) >= 30
            AND count(*) = 2
    ) large
        ON large.server IS NOT DISTINCT FROM calls.server AND large.new_tool = calls.new_tool
    GROUP BY ALL
),
bootstrap AS (
    SELECT server, new_tool, bootstrap_ratio(
        list(cluster ORDER BY cluster, bin) FILTER (side = 'base'),
        list(bin ORDER BY cluster, bin) FILTER (side = 'base'),
        list(n ORDER BY cluster, bin) FILTER (side = 'base'),
        list(cluster ORDER BY cluster, bin) FILTER (side = 'new'),
        list(bin ORDER BY cluster, bin) FILTER (side = 'new'),
        list(n ORDER BY cluster, bin) FILTER (side = 'new')) AS q
    FROM bins
    GROUP BY ALL
)
SELECT
    'tool' AS level, b.server, n.new_tool AS tool, p.base_tool, 'latency_p95_ms' AS metric,
    'ratio' AS scale, b.p95 AS base, n.p95 AS new, n.p95 / nullif(b.p95, 0) AS change,
    q[3] AS change_low, q[4] AS change_high, NULL::DOUBLE AS p_value, NULL::DOUBLE AS q_value,
    'described' AS verdict, b.n AS base_calls, n.n AS new_calls,
    b.sessions AS base_sessions, n.sessions AS new_sessions, 1.0 AS calls_of_common_tools
FROM totals b
JOIN totals n
    ON n.side = 'new' AND n.server IS NOT DISTINCT FROM b.server AND n.new_tool = b.new_tool
JOIN pairs p ON p.server IS NOT DISTINCT FROM b.server AND p.new_tool = b.new_tool
LEFT JOIN bootstrap s ON s.server IS NOT DISTINCT FROM b.server AND s.new_tool = b.new_tool
WHERE b.side = 'base'
