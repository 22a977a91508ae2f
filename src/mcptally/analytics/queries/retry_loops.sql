-- Where is a failing call made again unchanged, how often, and does it help?
-- Shows: server, tool, retried, loops, retries, longest, recovered, recovered_rate, wasted_tokens, worst_call
-- A retry is the same call (session, tool, arguments) within ten minutes of its failure; a loop is
-- a call made three times or more.
-- Hashes of names and ids are cheaper to group by than those. Most calls are never retried: they
-- need no chain.
WITH retried AS MATERIALIZED (
    SELECT DISTINCT hash(attempt_of) AS chain FROM calls WHERE attempt_why = 'retry'
),
chains AS MATERIALIZED (
    SELECT
        kind, any_value(server) AS server, any_value(tool) AS tool,
        any_value(attempt_of) AS attempt_of, any_value(hash(session)) AS visit,
        count(*) AS calls,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        arg_max(outcome = 'ok', place) AS worked, arg_max(verdict, place) AS verdict,
        -- What a model wrote and read for attempts that failed: bytes over 4.
        sum(request_bytes // 4 + coalesce(response_tokens, 0)) FILTER (outcome <> 'ok')
            AS wasted_tokens,
        epoch(max(coalesce(answered_at, requested_at)) - min(requested_at)) AS seconds
    FROM (
        SELECT *,
            -- Attempt, time and place in the recording: one number is faster to compare than three.
            (attempt::HUGEINT << 84) + (coalesce(epoch_us(requested_at), 0)::HUGEINT << 32)
                + (seq & 4294967295) AS place
        FROM (
            SELECT *, hash(hash(server), hash(tool)) AS kind, hash(attempt_of) AS chain
            FROM calls
            WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        )
        SEMI JOIN retried USING (chain)
    )
    GROUP BY kind, chain
    HAVING retries > 0
),
recoveries AS (
    SELECT kind, rate_bounds(list(y), list(n)) AS bounds
    FROM (
        SELECT kind, count(*)::DOUBLE AS n,
            count(*) FILTER (worked)::DOUBLE AS y
        FROM chains
        GROUP BY kind, visit
    )
    GROUP BY kind
),
usual AS (
    SELECT kind, first(verdict ORDER BY chains DESC, verdict) AS verdict
    FROM (
        SELECT kind, verdict, count(*) AS chains
        FROM chains
        WHERE verdict IS NOT NULL
        GROUP BY kind, verdict
    )
    GROUP BY kind
),
loops AS (
    SELECT
        kind, any_value(server) AS server, any_value(tool) AS tool,
        sum(calls)::BIGINT AS calls,
        count(*) AS retried,
        count(*) FILTER (calls >= 3) AS loops,
        sum(retries)::BIGINT AS retries,
        max(calls) AS longest,
        count(*) FILTER (worked) AS recovered,
        recovered / retried AS recovered_rate,
        sum(wasted_tokens)::BIGINT AS wasted_tokens,
        max(seconds) AS longest_seconds,
        arg_max(attempt_of, (calls, attempt_of)) AS worst_call
    FROM chains
    GROUP BY kind
)
SELECT
    server, tool, calls, retried, loops, retries, longest, recovered,
    recovered_rate, bounds[1] AS recovered_rate_low, bounds[2] AS recovered_rate_high,
    wasted_tokens, longest_seconds, u.verdict AS usual_verdict, worst_call
FROM loops
JOIN recoveries USING (kind)
LEFT JOIN usual u USING (kind)
ORDER BY retries DESC, server, tool
