-- Which clients, in which versions and with which models, send what wrong, compared with others on the same tools?
-- Shows: client, client_version, model, mistake, mistakes, calls, mistake_rate, others_rate, tools, sessions, call_id
-- A client is a name, a version and, where an imported log names it, a model.
-- Only tools that another client also called are compared; names that are not a tool, by server.
-- `others_rate`: the rate of the other clients if they had called each tool as often as this one.
-- `calls`: those that could show the mistake. For repeated_refusal, refusals after which the same
-- call could not succeed.
WITH unlisted AS (SELECT hash(hash(server), hash(tool)) AS tool_hash FROM _unlisted_names),
marked AS NOT MATERIALIZED (
    SELECT
        call_id, hash(hash(client), hash(client_version), hash(model)) AS version_hash,
        hash(session) AS session_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hash(server) AS server_hash, hash(attempt_of) AS chain, attempt, attempt_why,
        outcome = 'cancelled' AS given_up,
        -- Refusals after which the same call cannot succeed, whatever the caller does.
        verdict = 'business' AND retryable IN ('no', 'after_change') AS refused,
        CASE input_schema_state WHEN 'valid' THEN 'valid' WHEN 'invalid' THEN CASE
            WHEN input_schema_error LIKE 'lacks the member%' THEN 'missing_argument'
            WHEN input_schema_error LIKE 'has members that%' THEN 'invented_argument'
            WHEN regexp_matches(input_schema_error, '^is (a |an |null).*, not ') THEN 'wrong_type'
            ELSE 'wrong_value'
        END END AS inputs
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        AND (client IS NOT NULL OR model IS NOT NULL)
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
-- Calls by what they can show: `n` of them, of which a, b, c and d show a mistake of `kinds`.
of_sessions AS MATERIALIZED (
    SELECT
        'checked' AS basis, tool_hash AS place, version_hash, session_hash, sum(calls) AS n,
        coalesce(sum(calls) FILTER (inputs = 'missing_argument'), 0) AS a,
        coalesce(sum(calls) FILTER (inputs = 'invented_argument'), 0) AS b,
        coalesce(sum(calls) FILTER (inputs = 'wrong_type'), 0) AS c,
        coalesce(sum(calls) FILTER (inputs = 'wrong_value'), 0) AS d
    FROM counts
    WHERE inputs IS NOT NULL
    GROUP BY place, version_hash, session_hash
    UNION ALL
    SELECT
        'listed', tool_hash, version_hash, session_hash, sum(calls),
        coalesce(sum(calls) FILTER (given_up), 0), 0, 0, 0
    FROM counts
    WHERE NOT invented
    GROUP BY tool_hash, version_hash, session_hash
    UNION ALL
    SELECT
        'called', server_hash, version_hash, session_hash, sum(calls),
        coalesce(sum(calls) FILTER (invented), 0), 0, 0, 0
    FROM counts
    GROUP BY server_hash, version_hash, session_hash
    UNION ALL
    SELECT
        'refused', tool_hash, version_hash, session_hash, count(*)::DOUBLE,
        count(*) FILTER (made)::DOUBLE, 0, 0, 0
    FROM repetitions
    GROUP BY tool_hash, version_hash, session_hash
),
kinds(mistake, basis, letter) AS (
    VALUES
        ('missing_argument', 'checked', 'a'), ('invented_argument', 'checked', 'b'),
        ('wrong_type', 'checked', 'c'), ('wrong_value', 'checked', 'd'),
        ('given_up', 'listed', 'a'), ('invented_tool', 'called', 'a'),
        ('repeated_refusal', 'refused', 'a')
),
of_places AS MATERIALIZED (
    SELECT
        basis, place, version_hash, sum(n) AS n,
        sum(sum(n)) OVER (PARTITION BY basis, place) - sum(n) AS others_n
    FROM of_sessions
    GROUP BY basis, place, version_hash
    QUALIFY others_n > 0
),
own_sessions AS (
    SELECT
        basis, version_hash, session_hash, sum(n) AS n,
        sum(a) AS a, sum(b) AS b, sum(c) AS c, sum(d) AS d
    FROM of_sessions
    SEMI JOIN of_places USING (basis, place, version_hash)
    GROUP BY basis, version_hash, session_hash
),
own AS (
    SELECT
        mistake, version_hash, count(*) AS sessions, sum(n)::BIGINT AS calls,
        sum(y)::BIGINT AS mistakes, _interval(_moments(n, y)) AS rate
    FROM (
        SELECT *, CASE letter WHEN 'a' THEN a WHEN 'b' THEN b WHEN 'c' THEN c ELSE d END AS y
        FROM own_sessions
        JOIN kinds USING (basis)
    )
    GROUP BY mistake, version_hash
),
tools AS (
    SELECT basis, version_hash, count(*) AS tools FROM of_places GROUP BY basis, version_hash
),
-- The other clients' calls, weighed so that each tool has the share that it has in this client's.
weighed AS (
    SELECT
        p.basis, p.version_hash, session_hash, sum(weight * s.n) AS n,
        sum(weight * weight * s.n) AS squares, sum(weight * a) AS a, sum(weight * b) AS b,
        sum(weight * c) AS c, sum(weight * d) AS d
    FROM (SELECT *, n / others_n AS weight FROM of_places) p
    JOIN of_sessions s ON s.basis = p.basis AND s.place = p.place
        AND s.version_hash <> p.version_hash
    GROUP BY p.basis, p.version_hash, session_hash
),
scales AS (
    -- Kish's effective number of calls of a weighed sample, per call.
    SELECT basis, version_hash, sum(n) / sum(squares) AS scale
    FROM weighed
    GROUP BY basis, version_hash
),
others AS (
    SELECT
        mistake, version_hash, sum(y) / sum(n) AS mean, _interval(_moments(n, y)) AS rate
    FROM (
        SELECT
            mistake, version_hash, n * scale AS n,
            CASE letter WHEN 'a' THEN a WHEN 'b' THEN b WHEN 'c' THEN c ELSE d END * scale AS y
        FROM weighed
        JOIN scales USING (basis, version_hash)
        JOIN kinds USING (basis)
    )
    GROUP BY mistake, version_hash
),
examples AS (
    SELECT mistake, version_hash, min(call_id) AS call_id
    FROM (
        SELECT inputs AS mistake, 'checked' AS basis, tool_hash AS place, version_hash, call_id
        FROM counts
        WHERE inputs <> 'valid'
        UNION ALL
        SELECT 'given_up', 'listed', tool_hash, version_hash, call_id
        FROM counts
        WHERE given_up
        UNION ALL
        SELECT 'invented_tool', 'called', server_hash, version_hash, call_id
        FROM counts
        WHERE invented
        UNION ALL
        SELECT 'repeated_refusal', 'refused', tool_hash, version_hash, call_id
        FROM repetitions
        WHERE made
    )
    SEMI JOIN of_places USING (basis, place, version_hash)
    GROUP BY mistake, version_hash
),
clients_named AS (
    SELECT DISTINCT client, client_version, model,
        hash(hash(client), hash(client_version), hash(model)) AS version_hash
    FROM calls
    WHERE client IS NOT NULL OR model IS NOT NULL
)
SELECT
    client, client_version, model, mistake, mistakes, o.calls, mistakes / o.calls AS mistake_rate,
    o.rate.low AS mistake_rate_low, o.rate.high AS mistake_rate_high,
    _insufficient_data(o.rate.n_eff, o.rate.low, o.rate.high) AS insufficient_data,
    -- Rounded, so that the order in which weighed sessions are added does not matter.
    round(e.mean, 9) AS others_rate, round(e.rate.low, 9) AS others_rate_low,
    round(e.rate.high, 9) AS others_rate_high,
    t.tools, o.sessions, x.call_id
FROM own o
JOIN others e USING (mistake, version_hash)
JOIN kinds USING (mistake)
JOIN tools t USING (basis, version_hash)
JOIN clients_named USING (version_hash)
LEFT JOIN examples x USING (mistake, version_hash)
ORDER BY mistake, mistake_rate DESC, client, client_version, model
