-- Which mistakes does a client, version or model make more often than others that call the same tools?
-- Shows: client, client_version, model, mistake, mistakes, calls, mistake_rate, others_rate, tools, sessions, call_id
-- None: No client makes a mistake that other clients of the same tools do not make.
-- A client is a name, a version and, where an imported log names it, a model.
-- Only tools that another client also called are compared; names that are not tools are compared by
-- server. `others_rate`: the other clients' rate if they had called each tool as often as this
-- client. `calls`: calls that could show the mistake; for repeated_refusal, refusals that are
-- final.
WITH unlisted AS (SELECT hash(hash(server), hash(tool)) AS tool_hash FROM _unlisted_names),
marked AS MATERIALIZED (
    SELECT
        client, client_version, model, call_id,
        hash(hash(client), hash(client_version), hash(model)) AS version_hash,
        hash(session) AS session_hash, hash(hash(server), hash(tool)) AS tool_hash,
        hash(server) AS server_hash, tool_hash IN (SELECT tool_hash FROM unlisted) AS invented,
        outcome = 'cancelled' AS given_up,
        -- Refusals after which the same call can never succeed.
        _is_business(verdict) AND retryable IN ('no', 'after_change') AS refused,
        input_schema_state IN ('valid', 'invalid') AS checked,
        CASE WHEN input_schema_state = 'invalid' THEN CASE
            WHEN input_schema_error LIKE 'lacks the member%' THEN 'a'
            WHEN input_schema_error LIKE 'has members that%' THEN 'b'
            WHEN regexp_matches(input_schema_error, '^is (a |an |null).*, not ') THEN 'c'
            ELSE 'd'
        END END AS wrong
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        AND (client IS NOT NULL OR model IS NOT NULL)
),
counts AS MATERIALIZED (
    SELECT
        version_hash, session_hash, tool_hash, any_value(server_hash) AS server_hash,
        any_value(invented) AS invented, count(*)::DOUBLE AS calls,
        count(*) FILTER (given_up)::DOUBLE AS given_up,
        count(*) FILTER (refused)::DOUBLE AS refused, count(*) FILTER (checked)::DOUBLE AS checked,
        count(*) FILTER (wrong = 'a')::DOUBLE AS a, count(*) FILTER (wrong = 'b')::DOUBLE AS b,
        count(*) FILTER (wrong = 'c')::DOUBLE AS c, count(*) FILTER (wrong = 'd')::DOUBLE AS d
    FROM marked
    GROUP BY version_hash, session_hash, tool_hash
),
-- Refusals that the next attempt in their chain repeats.
repeated AS MATERIALIZED (
    SELECT version_hash, session_hash, tool_hash, count(*)::DOUBLE AS made, min(call_id) AS call_id
    FROM (
        SELECT
            hash(hash(client), hash(client_version), hash(model)) AS version_hash,
            hash(session) AS session_hash, hash(hash(server), hash(tool)) AS tool_hash,
            hash(attempt_of) AS chain, attempt, call_id
        FROM calls
        WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
            AND (client IS NOT NULL OR model IS NOT NULL)
            AND _is_business(verdict) AND retryable IN ('no', 'after_change')
    )
    JOIN (
        SELECT hash(attempt_of) AS chain, attempt - 1 AS attempt
        FROM calls
        WHERE method = 'tools/call' AND dir = 'c2s' AND attempt_why = 'retry'
    ) USING (chain, attempt)
    GROUP BY version_hash, session_hash, tool_hash
),
kinds(mistake, basis, letter) AS (
    VALUES
        ('missing_argument', 'checked', 'a'), ('invented_argument', 'checked', 'b'),
        ('wrong_type', 'checked', 'c'), ('wrong_value', 'checked', 'd'),
        ('given_up', 'listed', 'a'), ('invented_tool', 'called', 'a'),
        ('repeated_refusal', 'refused', 'a')
),
-- Calls by the mistakes they can show: `n` calls, of which a, b, c and d show a mistake of `kinds`.
-- `place`: the tool or server, and the mistakes that its calls can show.
of_sessions AS MATERIALIZED (
    SELECT
        'checked' AS basis, hash(1, tool_hash) AS place, version_hash, session_hash, checked AS n,
        a, b, c, d
    FROM counts
    WHERE checked > 0
    UNION ALL
    SELECT 'listed', hash(2, tool_hash), version_hash, session_hash, calls, given_up, 0, 0, 0
    FROM counts
    WHERE NOT invented
    UNION ALL
    SELECT
        'called', hash(3, server_hash), version_hash, session_hash, sum(calls),
        coalesce(sum(calls) FILTER (invented), 0), 0, 0, 0
    FROM counts
    GROUP BY server_hash, version_hash, session_hash
    UNION ALL
    SELECT
        'refused', hash(4, tool_hash), version_hash, session_hash, refused, coalesce(made, 0),
        0, 0, 0
    FROM counts
    LEFT JOIN repeated USING (version_hash, session_hash, tool_hash)
    WHERE refused > 0
),
of_places AS MATERIALIZED (
    SELECT
        basis, place, version_hash, sum(n) AS n,
        sum(sum(n)) OVER (PARTITION BY place) - sum(n) AS others_n
    FROM of_sessions
    GROUP BY basis, place, version_hash
    QUALIFY others_n > 0
),
owners AS (
    -- `scale`: Kish's effective sample size of the other clients' weighted calls, per call.
    SELECT
        basis, version_hash, count(*) AS tools, sum(n) / sum(n * n / others_n) AS scale
    FROM of_places
    GROUP BY basis, version_hash
),
own_sessions AS (
    SELECT
        basis, version_hash, session_hash, sum(n) AS n,
        sum(a) AS a, sum(b) AS b, sum(c) AS c, sum(d) AS d
    FROM of_sessions
    SEMI JOIN of_places USING (place, version_hash)
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
-- The other clients' calls, weighted so that each tool has its share in this client's calls.
weighed AS (
    SELECT
        p.basis, p.version_hash, session_hash, sum(weight * s.n) AS n, sum(weight * a) AS a,
        sum(weight * b) AS b, sum(weight * c) AS c, sum(weight * d) AS d
    FROM (
        SELECT basis, place, version_hash, n / others_n * scale AS weight
        FROM of_places
        JOIN owners USING (basis, version_hash)
    ) p
    JOIN of_sessions s ON s.place = p.place AND s.version_hash <> p.version_hash
    GROUP BY p.basis, p.version_hash, session_hash
),
others AS (
    SELECT
        mistake, version_hash, sum(y) / sum(n) AS mean, _interval(_moments(n, y)) AS rate
    FROM (
        SELECT *, CASE letter WHEN 'a' THEN a WHEN 'b' THEN b WHEN 'c' THEN c ELSE d END AS y
        FROM weighed
        JOIN kinds USING (basis)
    )
    GROUP BY mistake, version_hash
),
-- The first call with each mistake.
mistaken AS MATERIALIZED (
    SELECT
        version_hash, tool_hash, any_value(server_hash) AS server_hash, wrong, given_up,
        any_value(invented) AS invented, min(call_id) AS call_id
    FROM marked
    WHERE wrong IS NOT NULL OR given_up OR invented
    GROUP BY version_hash, tool_hash, wrong, given_up
),
examples AS (
    SELECT mistake, version_hash, min(call_id) AS call_id
    FROM (
        SELECT mistake, hash(1, tool_hash) AS place, version_hash, call_id
        FROM mistaken
        JOIN kinds ON basis = 'checked' AND letter = wrong
        UNION ALL
        SELECT 'given_up', hash(2, tool_hash), version_hash, call_id FROM mistaken WHERE given_up
        UNION ALL
        SELECT 'invented_tool', hash(3, server_hash), version_hash, call_id
        FROM mistaken
        WHERE invented
        UNION ALL
        SELECT 'repeated_refusal', hash(4, tool_hash), version_hash, call_id
        FROM repeated
    )
    SEMI JOIN of_places USING (place, version_hash)
    GROUP BY mistake, version_hash
),
clients_named AS (
    SELECT
        version_hash, any_value(client) AS client, any_value(client_version) AS client_version,
        any_value(model) AS model
    FROM marked
    GROUP BY version_hash
)
SELECT
    client, client_version, model, mistake, mistakes, o.calls, mistakes / o.calls AS mistake_rate,
    o.rate.low AS mistake_rate_low, o.rate.high AS mistake_rate_high,
    _insufficient_data(o.rate) AS insufficient_data,
    -- Rounded, so that the order in which weighted sessions are added does not matter.
    round(e.mean, 9) AS others_rate, round(e.rate.low, 9) AS others_rate_low,
    round(e.rate.high, 9) AS others_rate_high,
    w.tools, o.sessions, x.call_id
FROM own o
JOIN others e USING (mistake, version_hash)
JOIN kinds USING (mistake)
JOIN owners w USING (basis, version_hash)
JOIN clients_named USING (version_hash)
LEFT JOIN examples x USING (mistake, version_hash)
ORDER BY mistake, mistake_rate DESC, client, client_version, model
