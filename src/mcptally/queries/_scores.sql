-- Failure rates with clustered intervals, per tool and per server (level).
WITH judged AS (
    SELECT
        server, tool, session, call_id, outcome, verdict, latency_ms, response_tokens,
        inspector_confidence, inspector_classification, seed_confidence, seed_classification,
        outcome IN ('ok', 'hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')
            AND coalesce(verdict, '') NOT IN ('infrastructure', 'ambiguous') AS counted,
        coalesce(verdict = 'tool_failure', false) AS failed
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
),
sessions AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool, session,
        count(*) FILTER (counted) AS n,
        count(*) FILTER (counted AND failed) AS k
    FROM judged
    GROUP BY GROUPING SETS ((server, tool, session), (server, session))
),
totals AS (
    SELECT level, server, tool, sum(n)::BIGINT AS n, sum(k)::BIGINT AS k, count(*) FILTER (n > 0) AS g
    FROM sessions
    GROUP BY ALL
),
spread AS (
    SELECT s.level, s.server, s.tool, sum((s.k - t.k / t.n * s.n) ** 2) AS squares
    FROM sessions s
    JOIN totals t
        ON s.level = t.level AND s.server IS NOT DISTINCT FROM t.server
        AND s.tool IS NOT DISTINCT FROM t.tool
    WHERE s.n > 0
    GROUP BY ALL
),
-- Sessions are clusters: Miller 2024 (2411.00640), with DEFF = N/G where p is 0 or 1.
effective AS (
    SELECT
        t.level, t.server, t.tool, n, k, g, k / n AS p,
        CASE
            WHEN g = 1 THEN 1.0
            WHEN k = 0 OR k = n THEN g::DOUBLE
            ELSE n / greatest(1, g / (g - 1) * squares / n ** 2 / (k / n * (1 - k / n) / n))
        END AS n_eff
    FROM totals t
    JOIN spread s
        ON s.level = t.level AND s.server IS NOT DISTINCT FROM t.server
        AND s.tool IS NOT DISTINCT FROM t.tool
    WHERE n > 0
),
bounds AS (
    SELECT
        *,
        (p + 3.8415 / (2 * n_eff)) / (1 + 3.8415 / n_eff) AS centre,
        1.96 / (1 + 3.8415 / n_eff) * sqrt(p * (1 - p) / n_eff + 3.8415 / (4 * n_eff ** 2)) AS half
    FROM effective
),
tallies AS (
    SELECT
        if(grouping(tool) = 0, 'tool', 'server') AS level, server, tool,
        count(*) AS calls,
        count(DISTINCT tool) AS tools,
        count(DISTINCT session) AS sessions,
        count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (outcome = 'hidden_error') AS hidden_errors,
        count(*) FILTER (outcome = 'tool_error') AS tool_errors,
        count(*) FILTER (outcome = 'protocol_error') AS protocol_errors,
        count(*) FILTER (outcome IN ('timeout', 'no_response')) AS unanswered,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        count(*) FILTER (verdict = 'business') AS business,
        count(*) FILTER (verdict = 'tool_failure') AS tool_failures,
        count(*) FILTER (verdict = 'infrastructure') AS infrastructure,
        count(*) FILTER (verdict = 'ambiguous') AS ambiguous,
        quantile_cont(latency_ms, 0.5) AS latency_p50_ms,
        quantile_cont(latency_ms, 0.95) AS latency_p95_ms,
        avg(seed_confidence * CASE seed_classification WHEN 'fully_working' THEN 1.0
            WHEN 'partially_working' THEN 0.7 WHEN 'connectivity_only' THEN 0.3
            WHEN 'error' THEN 0.2 ELSE 0.0 END) AS seed_overall_confidence,
        avg(inspector_confidence * CASE inspector_classification WHEN 'fully_working' THEN 1.0
            WHEN 'partially_working' THEN 0.7 WHEN 'connectivity_only' THEN 0.3
            WHEN 'error' THEN 0.2 ELSE 0.0 END) AS inspector_overall_confidence
    FROM judged
    GROUP BY GROUPING SETS ((server, tool), (server))
)
SELECT
    a.level, a.server, a.tool, tools, calls, sessions,
    100 * (1 - p) AS confidence,
    100 * (1 - least(1, centre + half)) AS confidence_low,
    100 * (1 - greatest(0, centre - half)) AS confidence_high,
    coalesce(n_eff < 10 OR least(1, centre + half) - greatest(0, centre - half) > 0.4, true)
        AS insufficient_data,
    p AS failure_rate,
    n AS judged_calls,
    n_eff,
    ok, hidden_errors, tool_errors, protocol_errors, unanswered, cancelled,
    business, tool_failures, infrastructure, ambiguous,
    latency_p50_ms, latency_p95_ms,
    seed_overall_confidence, inspector_overall_confidence
FROM tallies a
LEFT JOIN bounds b
    ON a.level = b.level AND a.server IS NOT DISTINCT FROM b.server
    AND a.tool IS NOT DISTINCT FROM b.tool
