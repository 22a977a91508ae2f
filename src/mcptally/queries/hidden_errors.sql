-- Which results claim success and report a failure, and by which sign is that known?
-- Shows: server, tool, hidden_errors, hidden_error_rate, hidden_rule, hidden_confidence, verdict, example, example_call
WITH claims AS NOT MATERIALIZED (
    SELECT * FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        AND outcome IN ('ok', 'hidden_error')
),
visits AS MATERIALIZED (
    SELECT c.server, c.tool, session, count(*)::DOUBLE AS n
    FROM claims c
    SEMI JOIN (SELECT server, tool FROM claims WHERE outcome = 'hidden_error') h
        ON h.server IS NOT DISTINCT FROM c.server AND h.tool = c.tool
    GROUP BY c.server, c.tool, session
),
found AS (
    SELECT server, tool, hidden_rule, session, count(*)::DOUBLE AS y
    FROM claims
    WHERE outcome = 'hidden_error'
    GROUP BY ALL
),
shares AS (
    SELECT r.server, r.tool, r.hidden_rule, sum(n)::BIGINT AS calls,
        rate_bounds(list(coalesce(y, 0)), list(n)) AS bounds
    FROM (SELECT DISTINCT server, tool, hidden_rule FROM found) r
    JOIN visits v ON v.server IS NOT DISTINCT FROM r.server AND v.tool = r.tool
    LEFT JOIN found f
        ON f.server IS NOT DISTINCT FROM r.server AND f.tool = r.tool
        AND f.hidden_rule IS NOT DISTINCT FROM r.hidden_rule AND f.session IS NOT DISTINCT FROM v.session
    GROUP BY ALL
),
signs AS (
    SELECT
        server, tool, hidden_rule,
        count(*) AS hidden_errors,
        avg(hidden_confidence) AS hidden_confidence,
        mode(verdict ORDER BY verdict) AS verdict,
        count(DISTINCT session) AS sessions,
        max(requested_at) AS last_seen,
        left(arg_min(coalesce(error_text, text), call_id), 300) AS example,
        min(call_id) AS example_call
    FROM claims
    WHERE outcome = 'hidden_error'
    GROUP BY server, tool, hidden_rule
)
SELECT
    s.server, s.tool, calls, hidden_errors,
    -- Of the tool's calls that claim success; all signs together: tool_scores.
    hidden_errors / calls AS hidden_error_rate,
    bounds[1] AS hidden_error_rate_low, bounds[2] AS hidden_error_rate_high,
    s.hidden_rule, hidden_confidence, verdict, sessions, last_seen, example, example_call
FROM signs s
JOIN shares r
    ON r.server IS NOT DISTINCT FROM s.server AND r.tool = s.tool
    AND r.hidden_rule IS NOT DISTINCT FROM s.hidden_rule
ORDER BY hidden_errors DESC, s.server, s.tool, s.hidden_rule
