-- Where is a failing call made again unchanged, how often, and does it help?
-- Shows: server, tool, retried, loops, retries, longest, recovered, recovered_rate, wasted_tokens, worst_call
-- A retry is the same call (session, tool, arguments) within ten minutes of its failure; a loop is
-- a call made three times or more.
WITH chains AS MATERIALIZED (
    SELECT
        server, tool, attempt_of, any_value(session) AS session,
        count(*) AS calls,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        arg_max(outcome, (attempt, requested_at, call_id)) AS ended,
        arg_max(verdict, (attempt, requested_at, call_id)) AS ended_verdict,
        -- What a model wrote and read for attempts that failed: bytes over 4.
        sum(request_bytes // 4 + coalesce(response_tokens, 0)) FILTER (outcome <> 'ok')
            AS wasted_tokens,
        epoch(max(coalesce(answered_at, requested_at)) - min(requested_at)) AS seconds
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        -- Most calls are never retried: they need no chain.
        AND attempt_of IN (SELECT attempt_of FROM calls WHERE attempt_why = 'retry')
    GROUP BY server, tool, attempt_of
    HAVING retries > 0
),
recoveries AS (
    SELECT server, tool, rate_bounds(list(y), list(n)) AS bounds
    FROM (
        SELECT server, tool, session, count(*)::DOUBLE AS n,
            count(*) FILTER (ended = 'ok')::DOUBLE AS y
        FROM chains
        GROUP BY server, tool, session
    )
    GROUP BY server, tool
),
loops AS (
    SELECT
        server, tool,
        sum(calls)::BIGINT AS calls,
        count(*) AS retried,
        count(*) FILTER (calls >= 3) AS loops,
        sum(retries)::BIGINT AS retries,
        max(calls) AS longest,
        count(*) FILTER (ended = 'ok') AS recovered,
        recovered / retried AS recovered_rate,
        sum(wasted_tokens)::BIGINT AS wasted_tokens,
        max(seconds) AS longest_seconds,
        mode(ended_verdict ORDER BY ended_verdict) AS usual_verdict,
        arg_max(attempt_of, (calls, attempt_of)) AS worst_call
    FROM chains
    GROUP BY ALL
)
SELECT
    l.server, l.tool, calls, retried, loops, retries, longest, recovered,
    recovered_rate, bounds[1] AS recovered_rate_low, bounds[2] AS recovered_rate_high,
    wasted_tokens, longest_seconds, usual_verdict, worst_call
FROM loops l
JOIN recoveries r ON r.server IS NOT DISTINCT FROM l.server AND r.tool = l.tool
ORDER BY retries DESC, l.server, l.tool
