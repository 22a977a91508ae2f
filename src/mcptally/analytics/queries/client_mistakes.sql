-- Which clients, in which versions, send what wrong, compared with other clients on the same tools?
-- Shows: client, client_version, mistake, mistakes, calls, mistake_rate, others_rate, tools, sessions, call_id
-- Only tools count that another client called as well; names of no tool are compared by server.
-- `others_rate`: the rate of the other clients if they had called each tool as often as this one.
-- `calls`: those that could show the mistake. For repeated_refusal, refusals after which the same
-- call could not succeed.
WITH unlisted AS (SELECT hash(hash(server), hash(tool)) AS tool_hash FROM _unlisted_names),
marked AS NOT MATERIALIZED (
    SELECT
        client, client_version, call_id, hash(hash(client), hash(client_version)) AS version_hash,
        hash(session) AS session_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hash(server) AS server_hash, hash(attempt_of) AS chain, attempt, attempt_why,
        outcome = 'cancelled' AS given_up,
        -- Nothing that a caller may do makes the same call succeed.
        verdict = 'business' AND retryable IN ('no', 'after_change') AS refused,
        CASE input_schema_state WHEN 'valid' THEN 'valid' WHEN 'invalid' THEN CASE
            WHEN input_schema_error LIKE 'lacks the member%' THEN 'missing_argument'
            WHEN input_schema_error LIKE 'has members that%' THEN 'invented_argument'
            WHEN regexp_matches(input_schema_error, '^is (a |an |null).*, not ') THEN 'wrong_type'
            ELSE 'wrong_value'
        END END AS inputs
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND client IS NOT NULL
),
-- Calls per client, session, tool and result: few rows, so that the kinds are listed from them.
counts AS MATERIALIZED (
    SELECT
        version_hash, session_hash, tool_hash, inputs, given_up,
        tool_hash IN (SELECT tool_hash FROM unlisted) AS invented,
        any_value(server_hash) AS server_hash, count(*)::DOUBLE AS calls, min(call_id) AS call_id
    FROM marked
    GROUP BY version_hash, session_hash, tool_hash, inputs, given_up
),
-- Refusals, and whether the next attempt of their chain repeats the call.
repetitions AS (
    SELECT version_hash, session_hash, tool_hash, r.call_id, again.chain IS NOT NULL AS made
    FROM marked r
    LEFT JOIN (
        SELECT chain, attempt - 1 AS attempt FROM marked WHERE attempt_why = 'retry'
    ) again USING (chain, attempt)
    WHERE refused
),
possible AS (
    SELECT version_hash, session_hash, calls, call_id, unnest([
        {mistake: 'missing_argument', place: tool_hash, counts: inputs IS NOT NULL,
            made: inputs = 'missing_argument'},
        {mistake: 'invented_argument', place: tool_hash, counts: inputs IS NOT NULL,
            made: inputs = 'invented_argument'},
        {mistake: 'wrong_type', place: tool_hash, counts: inputs IS NOT NULL,
            made: inputs = 'wrong_type'},
        {mistake: 'wrong_value', place: tool_hash, counts: inputs IS NOT NULL,
            made: inputs = 'wrong_value'},
        {mistake: 'invented_tool', place: server_hash, counts: true, made: invented},
        {mistake: 'given_up', place: tool_hash, counts: NOT invented, made: given_up}
    ], recursive := true)
    FROM counts
    UNION ALL BY NAME
    SELECT
        version_hash, session_hash, count(*)::DOUBLE AS calls, min(call_id) AS call_id,
        'repeated_refusal' AS mistake, tool_hash AS place, true AS counts, made
    FROM repetitions
    GROUP BY version_hash, session_hash, tool_hash, made
),
clients_named AS (
    SELECT DISTINCT client, client_version,
        hash(hash(client), hash(client_version)) AS version_hash
    FROM calls
    WHERE client IS NOT NULL
),
of_sessions AS MATERIALIZED (
    SELECT
        mistake, place, version_hash, session_hash, sum(calls) AS n,
        coalesce(sum(calls) FILTER (made), 0) AS y, min(call_id) FILTER (made) AS call_id
    FROM possible
    WHERE counts
    GROUP BY mistake, place, version_hash, session_hash
),
of_places AS MATERIALIZED (
    SELECT
        mistake, place, version_hash, sum(n) AS n, sum(y) AS y,
        sum(sum(n)) OVER (PARTITION BY mistake, place) - sum(n) AS others_n
    FROM of_sessions
    GROUP BY mistake, place, version_hash
    QUALIFY others_n > 0
),
own AS (
    SELECT
        mistake, version_hash, count(DISTINCT place) AS tools,
        count(DISTINCT session_hash) AS sessions, sum(n)::BIGINT AS calls,
        sum(y)::BIGINT AS mistakes, min(call_id) AS call_id
    FROM of_sessions
    SEMI JOIN of_places USING (mistake, place, version_hash)
    GROUP BY mistake, version_hash
),
own_rates AS (
    SELECT mistake, version_hash, _interval(_moments(n, y)) AS rate
    FROM (
        SELECT mistake, version_hash, session_hash, sum(n) AS n, sum(y) AS y
        FROM of_sessions
        SEMI JOIN of_places USING (mistake, place, version_hash)
        GROUP BY mistake, version_hash, session_hash
    )
    GROUP BY mistake, version_hash
),
-- The other clients' calls, weighed so that each tool has the share that it has in this client's.
weighed AS (
    SELECT
        mistake, p.version_hash, session_hash,
        sum(p.n / p.others_n * s.n) AS n, sum(p.n / p.others_n * s.y) AS y,
        sum((p.n / p.others_n) ** 2 * s.n) AS squares
    FROM of_places p
    JOIN of_sessions s USING (mistake, place)
    WHERE s.version_hash <> p.version_hash
    GROUP BY mistake, p.version_hash, session_hash
),
others_rates AS (
    SELECT
        mistake, version_hash, sum(y) / sum(n) AS mean,
        -- Kish's effective number of calls of a weighed sample.
        rate_bounds(list(y * scale), list(n * scale)) AS bounds
    FROM (
        SELECT *, sum(n) OVER whole / sum(squares) OVER whole AS scale
        FROM weighed
        WINDOW whole AS (PARTITION BY mistake, version_hash)
    )
    GROUP BY mistake, version_hash
)
SELECT
    client, client_version, mistake, mistakes, o.calls, mistakes / o.calls AS mistake_rate,
    r.rate.low AS mistake_rate_low, r.rate.high AS mistake_rate_high,
    _insufficient_data(r.rate.n_eff, r.rate.low, r.rate.high) AS insufficient_data,
    e.mean AS others_rate, e.bounds[1] AS others_rate_low, e.bounds[2] AS others_rate_high,
    tools, sessions, o.call_id
FROM own o
JOIN own_rates r USING (mistake, version_hash)
JOIN others_rates e USING (mistake, version_hash)
JOIN clients_named USING (version_hash)
ORDER BY o.mistake, mistake_rate DESC, client, client_version
