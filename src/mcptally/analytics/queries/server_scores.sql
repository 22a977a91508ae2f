-- How reliable is each server, by calls and by tools, and how certain is that?
-- Shows: server, confidence, calls, tool_failures, hidden_errors, tools, confidence_tool_mean, sessions, insufficient_data, business, infrastructure, ok, latency_p50_ms
WITH rated AS MATERIALIZED (
    SELECT v.* FROM (
        SELECT tool_hash, any_value(server) AS server, any_value(tool) AS tool,
            sum(failure_n) AS n, sum(failure_y) / sum(failure_n) AS mean
        FROM _session_counts('tool')
        WHERE failure_n > 0
        GROUP BY tool_hash
    ) v
    -- A name that the server does not list was invented by the agent and is not one of its tools.
    ANTI JOIN _unlisted_tools u ON u.server IS NOT DISTINCT FROM v.server AND u.tool = v.tool
),
-- The mean over tools gives every tool the same weight; sessions are clusters for its variance.
tool_means AS (
    SELECT server, avg(mean) AS p, sum(n) AS n, count(*) AS tools
    FROM rated
    GROUP BY server
),
tool_spread AS (
    SELECT server, count(*) AS g, sum(u ** 2) * count(*) / nullif(count(*) - 1, 0) AS variance
    FROM (
        SELECT any_value(t.server) AS server,
            sum((failure_y - t.mean * failure_n) / t.weight) AS u
        FROM _session_counts('tool') s
        JOIN (
            SELECT r.tool_hash, r.server, r.mean, r.n * m.tools AS weight
            FROM rated r
            JOIN tool_means m ON m.server IS NOT DISTINCT FROM r.server
        ) t USING (tool_hash)
        WHERE failure_n > 0
        GROUP BY hash(hash(t.server), hash(s.session))
    )
    GROUP BY server
),
tool_bounds AS (
    SELECT
        m.server, p,
        CASE WHEN g = 1 THEN 1.0 WHEN p IN (0, 1) THEN g
            ELSE p * (1 - p) / greatest(variance, p * (1 - p) / n) END AS n_eff,
        t_quantile(0.975, if(g = 1 OR p IN (0, 1), 'infinity'::DOUBLE, g - 1)) AS t,
        wilson_low(p, n_eff, t) AS low, wilson_high(p, n_eff, t) AS high
    FROM tool_means m
    JOIN tool_spread s ON m.server IS NOT DISTINCT FROM s.server
)
SELECT
    a.server, a.tools, a.tools_listed,
    a.* EXCLUDE (level, server, tool, tools, tools_listed, q),
    100 * (1 - b.p) AS confidence_tool_mean,
    100 * (1 - b.high) AS confidence_tool_mean_low,
    100 * (1 - b.low) AS confidence_tool_mean_high,
    _insufficient_data(b.n_eff, b.low, b.high) AS confidence_tool_mean_insufficient_data,
    rank() OVER (ORDER BY failure_rate_shrunk_low DESC NULLS LAST) AS rank_worst,
    rank() OVER (ORDER BY failure_rate_shrunk_high NULLS LAST) AS rank_best
FROM _scores('server') a
LEFT JOIN tool_bounds b ON b.server IS NOT DISTINCT FROM a.server
ORDER BY a.confidence NULLS LAST, a.calls DESC, a.server
