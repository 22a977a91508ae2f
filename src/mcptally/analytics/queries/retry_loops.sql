-- Which failing calls are repeated unchanged, how often, and does it help?
-- Shows: server, tool, retried_calls, loops, retries, longest, recovered_calls, recovered_rate, wasted_tokens, call_id
-- None: No failed call was repeated unchanged.
-- A retry is the same call (session, tool, arguments) within ten minutes of its failure; a loop is
-- a call that is made at least three times. Grouping by hashes of names and ids is cheaper than
-- grouping by the texts. Most calls are never retried and are left out first.
WITH retried AS MATERIALIZED (
    SELECT DISTINCT hash(attempt_of) AS chain FROM calls WHERE attempt_why = 'retry'
),
chains AS MATERIALIZED (
    SELECT
        tool_hash, any_value(server) AS server, any_value(tool) AS tool,
        any_value(attempt_of) AS attempt_of, any_value(hash(session)) AS session_hash,
        count(*) AS calls,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        arg_max(outcome = 'ok', place) AS worked, arg_max(verdict, place) AS verdict,
        -- Tokens that a model wrote and read for failed attempts: bytes divided by 4.
        sum(request_bytes // 4 + coalesce(response_tokens, 0)) FILTER (outcome <> 'ok')
            AS wasted_tokens,
        epoch(max(coalesce(answered_at, requested_at)) - min(requested_at)) AS seconds
    FROM (
        SELECT *,
            -- Attempt, time and place in the recording in one number, which is faster to compare.
            (attempt::HUGEINT << 84) + (coalesce(epoch_us(requested_at), 0)::HUGEINT << 32)
                + (seq & 4294967295) AS place
        FROM (
            SELECT *, hash(hash(server), hash(tool)) AS tool_hash, hash(attempt_of) AS chain
            FROM calls
            WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        )
        SEMI JOIN retried USING (chain)
    )
    GROUP BY tool_hash, chain
    HAVING retries > 0
),
recoveries AS (
    SELECT tool_hash, _interval(_moments(n, y)) AS share
    FROM (
        SELECT tool_hash, count(*)::DOUBLE AS n,
            count(*) FILTER (worked)::DOUBLE AS y
        FROM chains
        GROUP BY tool_hash, session_hash
    )
    GROUP BY tool_hash
),
usual_verdicts AS (
    SELECT tool_hash, first(verdict ORDER BY chains DESC, verdict) AS verdict
    FROM (
        SELECT tool_hash, verdict, count(*) AS chains
        FROM chains
        WHERE verdict IS NOT NULL
        GROUP BY tool_hash, verdict
    )
    GROUP BY tool_hash
),
loops AS (
    SELECT
        tool_hash, any_value(server) AS server, any_value(tool) AS tool,
        sum(calls)::BIGINT AS calls,
        count(*) AS retried_calls,
        count(*) FILTER (calls >= 3) AS loops,
        sum(retries)::BIGINT AS retries,
        max(calls) AS longest,
        count(*) FILTER (worked) AS recovered_calls,
        recovered_calls / retried_calls AS recovered_rate,
        sum(wasted_tokens)::BIGINT AS wasted_tokens,
        max(seconds) AS longest_seconds,
        arg_max(attempt_of, (calls, attempt_of)) AS call_id
    FROM chains
    GROUP BY tool_hash
)
SELECT
    server, tool, calls, retried_calls, loops, retries, longest, recovered_calls,
    recovered_rate, share.low AS recovered_rate_low, share.high AS recovered_rate_high,
    wasted_tokens, longest_seconds, u.verdict, call_id
FROM loops
JOIN recoveries USING (tool_hash)
LEFT JOIN usual_verdicts u USING (tool_hash)
ORDER BY retries DESC, server, tool
