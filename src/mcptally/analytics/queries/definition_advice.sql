-- Which arguments and descriptions should be changed, ranked by the refused calls that concern them?
-- Shows: server, tool, argument, advice, refused, calls, refused_share, sent, message, call_id
-- None: No refused call points to an argument or a description that should be changed.
-- `_argument_refusals` says which argument a refusal concerns. If it concerns no argument, it
-- concerns the description of the tool.
WITH refusals AS MATERIALIZED (SELECT * FROM _argument_refusals),
smells AS MATERIALIZED (SELECT row_number() OVER () AS place, * FROM _smells),
concerned AS MATERIALIZED (
    SELECT place, s.server, s.definition, sessions, call_id, sent, message
    FROM refusals a
    JOIN smells s ON s.definition = a.definition AND s.server IS NOT DISTINCT FROM a.server
        AND s.argument IS NOT DISTINCT FROM a.argument
    -- If a schema refuses the arguments as a whole, that does not concern the description.
    WHERE NOT (a.argument IS NULL AND a.invalid)
),
hits AS (
    SELECT place, s.session_hash, sum(s.n)::DOUBLE AS y
    FROM (SELECT place, unnest(sessions) AS s FROM concerned)
    GROUP BY place, s.session_hash
),
examples AS (
    SELECT
        place, min(call_id) AS call_id,
        arg_min({sent: sent, message: message}, call_id) AS texts
    FROM concerned
    GROUP BY place
),
-- Calls to those definitions, by session.
called AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(definition)) AS definition_hash, hash(session) AS session_hash,
        count(*)::DOUBLE AS n
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s'
        AND hash(definition) IN (SELECT hash(definition) FROM concerned)
    GROUP BY definition_hash, session_hash
),
rates AS (
    SELECT
        place, sum(y)::BIGINT AS refused, sum(n)::BIGINT AS calls,
        count(*) FILTER (y > 0) AS sessions,
        _interval(_moments(n, coalesce(y, 0))) AS share
    FROM (
        SELECT DISTINCT place, hash(hash(server), hash(definition)) AS definition_hash FROM concerned
    )
    JOIN called USING (definition_hash)
    LEFT JOIN hits USING (place, session_hash)
    GROUP BY place
)
SELECT
    server, s.tool, argument, array_to_string(advice, '; ') AS advice, refused, r.calls,
    refused / r.calls AS refused_share, share.low AS refused_share_low,
    share.high AS refused_share_high,
    _insufficient_data(share) AS insufficient_data,
    r.sessions, texts.sent, texts.message, call_id,
    rules, s.definition
FROM rates r
JOIN smells s USING (place)
JOIN examples USING (place)
ORDER BY share.low * r.calls DESC, refused DESC, server, s.tool, argument
