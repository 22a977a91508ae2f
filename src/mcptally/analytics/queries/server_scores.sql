-- How often do calls to each server work, how often do its tools fail, and how certain is that?
-- Shows: server, ok, calls, success_rate, confidence, tool_failures, infrastructure, ambiguous, business, hidden_errors, tools, confidence_tool_mean, sessions, latency_p50_ms
-- None: No server was called, and none failed to start.
-- Servers are ordered by what they cost callers, highest first.
WITH shown AS MATERIALIZED (
    SELECT
        tool_hash, server, tool, session,
        unnest([
            {ambiguous: false, n: shown_n, y: success_y},
            {ambiguous: true, n: possibly_shown_n, y: success_y}
        ], recursive := true)
    FROM _session_counts('tool')
    WHERE possibly_shown_n > 0
),
rated AS MATERIALIZED (
    SELECT v.* FROM (
        SELECT tool_hash, ambiguous, any_value(server) AS server, any_value(tool) AS tool,
            sum(n) AS n, sum(y) / sum(n) AS mean
        FROM shown
        GROUP BY tool_hash, ambiguous
        HAVING sum(n) > 0
    ) v
    ANTI JOIN _unlisted_names u ON u.server IS NOT DISTINCT FROM v.server AND u.tool = v.tool
    -- A tool with only ambiguous failures has no confidence.
    QUALIFY count(*) OVER (PARTITION BY tool_hash) = 2
),
-- The mean over tools gives every tool the same weight; its variance is clustered by session.
tool_means AS (
    SELECT server, ambiguous, avg(mean) AS p, sum(n) AS n, count(*) AS tools
    FROM rated
    GROUP BY server, ambiguous
),
tool_spread AS (
    SELECT server, ambiguous, count(*) AS g,
        sum(u ** 2) * count(*) / nullif(count(*) - 1, 0) AS variance
    FROM (
        SELECT any_value(t.server) AS server, s.ambiguous,
            sum((y - t.mean * n) / t.weight) AS u
        FROM shown s
        JOIN (
            SELECT r.tool_hash, r.ambiguous, r.server, r.mean, r.n * m.tools AS weight
            FROM rated r
            JOIN tool_means m
                ON m.server IS NOT DISTINCT FROM r.server AND m.ambiguous = r.ambiguous
        ) t ON t.tool_hash = s.tool_hash AND t.ambiguous = s.ambiguous
        WHERE n > 0
        GROUP BY hash(hash(t.server), hash(s.session)), s.ambiguous
    )
    GROUP BY server, ambiguous
),
tool_bounds AS (
    SELECT
        m.server, m.ambiguous, p,
        CASE WHEN g = 1 THEN 1.0 WHEN p IN (0, 1) THEN g
            ELSE p * (1 - p) / greatest(variance, p * (1 - p) / n) END AS n_eff,
        t_quantile(0.975, if(g = 1 OR p IN (0, 1), 'infinity'::DOUBLE, g - 1)) AS t,
        wilson_low(p, n_eff, t) AS low, wilson_high(p, n_eff, t) AS high
    FROM tool_means m
    JOIN tool_spread s ON m.server IS NOT DISTINCT FROM s.server AND m.ambiguous = s.ambiguous
),
unlisted AS (
    SELECT c.server, sum(c.calls)::BIGINT AS calls
    FROM usage c
    SEMI JOIN _unlisted_names u ON u.server IS NOT DISTINCT FROM c.server AND u.tool = c.tool
    GROUP BY c.server
),
scored AS (
    SELECT
        a.server, a.tools, a.tools_listed,
        a.* EXCLUDE (level, server, tool, tools, tools_listed, q),
        100 * b.p AS confidence_tool_mean,
        100 * least(b.low, w.low) AS confidence_tool_mean_low,
        100 * b.high AS confidence_tool_mean_high,
        _insufficient_data({n_eff: b.n_eff, low: confidence_tool_mean_low / 100, high: b.high})
            AS confidence_tool_mean_insufficient_data,
        -- Calls to names that are not tools of the server: see `unlisted_names`.
        coalesce(u.calls, 0) AS unlisted_calls,
        l.starts, l.failed_starts,
        rank() OVER (ORDER BY confidence_shrunk_high NULLS LAST) AS rank_worst,
        rank() OVER (ORDER BY confidence_shrunk_low DESC NULLS LAST) AS rank_best
    FROM _scores('server') a
    LEFT JOIN tool_bounds b ON b.server IS NOT DISTINCT FROM a.server AND NOT b.ambiguous
    LEFT JOIN tool_bounds w ON w.server IS NOT DISTINCT FROM a.server AND w.ambiguous
    LEFT JOIN unlisted u ON u.server IS NOT DISTINCT FROM a.server
    LEFT JOIN servers l ON l.server IS NOT DISTINCT FROM a.server
)
SELECT * FROM scored
UNION ALL BY NAME
-- Servers that never started or never answered have no calls and would be missing otherwise.
SELECT
    server, 0 AS tools, 0 AS calls, 0 AS ok, 0 AS sessions, starts, failed_starts,
    0 AS tool_failures, 0 AS infrastructure, 0 AS ambiguous, 0 AS business
FROM servers
WHERE calls = 0 AND (failed_starts > 0 OR server IN (SELECT server FROM _unanswered_servers))
ORDER BY
    _caller_cost(tool_failures, infrastructure, ambiguous, business) DESC,
    calls DESC, failed_starts DESC NULLS LAST, server
