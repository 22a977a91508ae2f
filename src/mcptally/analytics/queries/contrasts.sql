-- What do failing calls to a tool have in common that its working calls lack?
-- Shows: server, tool, template, calls, also_worked, aspect, path, test, value, absent, failed_with, calls_with, failed_without, calls_without
-- None: No tool has enough failed and enough successful calls to compare.
-- One row per group of failures (server, tool, template and verdict) with at least five distinct
-- failing calls, of a tool with at least five distinct calls that worked. `test` is null if nothing
-- that is tried separates them. `calls_with` and `calls_without` count all calls to the tool that
-- ended, for which the fact holds and does not; `failed_with` and `failed_without` count the calls of
-- the group among them. Calls with the same arguments in a session count once for the test
-- (`statistics.contrasts`). Of more than 1,000 distinct calls of a group, 1,000 are read (`sampled`).
-- `also_worked` counts the failing calls whose arguments worked in another call.
WITH judged AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool)) AS tool_hash,
        if(outcome = 'ok', 0, hash(hash(coalesce(template, outcome)), hash(verdict))) AS class_hash,
        hash(session) AS session_hash, hash(arguments) AS arguments_hash,
        -- Masked values may differ.
        arguments IS NOT NULL AND NOT contains(arguments, '[redacted:') AS comparable, call_id
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND _ended(outcome)
),
classes AS MATERIALIZED (
    SELECT
        tool_hash, class_hash, count(*) AS calls, min(call_id) AS call_id,
        count(DISTINCT hash(session_hash, arguments_hash)) AS units
    FROM judged
    GROUP BY tool_hash, class_hash
),
-- Failing calls whose arguments worked in another call.
also_worked AS (
    SELECT tool_hash, class_hash, count(*) AS also_worked
    FROM judged
    SEMI JOIN (SELECT tool_hash, arguments_hash FROM judged WHERE class_hash = 0 AND comparable)
        USING (tool_hash, arguments_hash)
    WHERE class_hash <> 0 AND comparable
    GROUP BY tool_hash, class_hash
),
compared AS (
    SELECT tool_hash
    FROM classes
    GROUP BY tool_hash
    HAVING max(units) FILTER (class_hash <> 0) >= 5 AND max(units) FILTER (class_hash = 0) >= 5
),
sample AS (
    SELECT
        tool_hash, class_hash, session_hash, arguments_hash,
        count(*) AS n, min(call_id) AS call_id
    FROM judged
    SEMI JOIN compared USING (tool_hash)
    GROUP BY tool_hash, class_hash, session_hash, arguments_hash
    QUALIFY row_number() OVER (PARTITION BY tool_hash, class_hash ORDER BY hash(min(call_id))) <= 1000
),
units AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY tool_hash ORDER BY call_id) - 1 AS unit
    FROM sample
),
-- The first call of each unit, with what surrounds it.
surroundings AS MATERIALIZED (
    SELECT u.tool_hash, u.unit, u.arguments_hash, c.*
    FROM units u
    JOIN calls c USING (call_id)
),
documents AS (
    SELECT tool_hash, arguments_hash, any_value(arguments) AS arguments
    FROM surroundings
    WHERE length(arguments) <= 100000 AND json_valid(arguments)
    GROUP BY tool_hash, arguments_hash
),
-- Each value in the arguments. `items[].name` is every name of the list.
nodes AS (
    SELECT
        tool_hash, arguments_hash, type,
        regexp_replace(substring(fullkey, 3), '\[\d+\]', '[]', 'g') AS path,
        atom ->> '$' AS said,
        if(type = 'ARRAY', json_array_length(arguments, fullkey), NULL) AS items,
        if(type = 'OBJECT', len(json_keys(arguments, fullkey)), NULL) AS members,
        TRY_CAST(if(type IN ('DOUBLE', 'BIGINT', 'UBIGINT'), said, NULL) AS DOUBLE) AS number
    FROM documents, json_tree(arguments)
    WHERE fullkey <> '$' AND length(fullkey) <= 120 AND len(string_split(fullkey, '.')) <= 5
),
tried AS (
    SELECT
        tool_hash, arguments_hash, path,
        unnest([
            {test: 'given', value: 'yes'},
            {test: 'empty', value: if(said = '' OR items = 0 OR members = 0, 'yes', NULL)},
            {test: 'blank', value: if(trim(said) = '' AND said <> '', 'yes', NULL)},
            {test: 'equals', value: if(
                length(said) BETWEEN 1 AND 60 AND NOT contains(said, '[redacted:'), said, NULL)},
            {test: 'sign', value: CASE WHEN number < 0 THEN 'negative' WHEN number > 0 THEN 'positive' END},
            {test: 'sign', value: if(number <> floor(number), 'fraction', NULL)},
            {test: 'at_least', value: if(abs(number) >= 1000, '1000', NULL)},
            {test: 'at_least', value: if(abs(number) >= 1000000, '1000000', NULL)},
            {test: 'items', value: if(items >= 2, '2', NULL)},
            {test: 'items', value: if(items > 10, '11', NULL)},
            {test: 'form', value: CASE
                WHEN type <> 'VARCHAR' OR said = '' THEN NULL
                WHEN regexp_full_match(left(said, 40), '[+-]?\d+(\.\d+)?') THEN 'number'
                WHEN regexp_matches(left(said, 20), '^[A-Za-z][A-Za-z0-9+.-]*://') THEN 'url'
                WHEN regexp_matches(left(said, 3), '^(/|~/|[A-Za-z]:[\\/])') THEN 'path'
                WHEN regexp_full_match(left(said, 40),
                    '\d{4}-\d{2}-\d{2}([T ][0-9:.]+(Z|[+-]\d{2}:?\d{2})?)?') THEN 'date'
                WHEN regexp_full_match(left(said, 40),
                    '[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}') THEN 'uuid'
                WHEN regexp_full_match(left(said, 200), '[^@\s]+@[^@\s]+\.[^@\s]+') THEN 'email'
            END},
            {test: 'form', value: if(regexp_matches(left(said, 2000), '[^\x00-\x7F]'), 'non_ascii', NULL)},
            {test: 'form', value: if(contains(left(said, 2000), chr(10)), 'lines', NULL)},
            {test: 'form', value: if(
                regexp_matches(left(said, 2000), '(^|[/\\])\.\.([/\\]|$)'), 'parent_path', NULL)},
            {test: 'type', value: CASE type
                WHEN 'VARCHAR' THEN 'text' WHEN 'ARRAY' THEN 'list' WHEN 'OBJECT' THEN 'object'
                WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE 'number' END},
            {test: 'longer', value: if(length(said) > 100, '100', NULL)},
            {test: 'longer', value: if(length(said) > 1000, '1000', NULL)},
            {test: 'longer', value: if(length(said) > 10000, '10000', NULL)}
        ]) AS fact
    FROM nodes
),
-- The calls of the same sessions, in order; filters do not apply to what surrounds a call.
neighbours AS (
    SELECT
        call_id, lag(tool) OVER calls_before AS previous, lag(outcome) OVER calls_before AS ended_as,
        row_number() OVER calls_before AS place,
        -- An answer that is not recorded ends nothing.
        max(requested_at + to_milliseconds(latency_ms)) OVER (
            PARTITION BY session ORDER BY requested_at, call_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM _archive_calls
    SEMI JOIN (SELECT DISTINCT session FROM surroundings) USING (session)
    WHERE method = 'tools/call' AND dir = 'c2s'
    WINDOW calls_before AS (PARTITION BY session ORDER BY requested_at, call_id)
),
-- The minutes in which tools of a server failed, not for what they were asked.
bad_minutes AS (
    SELECT
        server, time_bucket(INTERVAL 1 MINUTE, requested_at) AS minute, min(tool) AS first_tool,
        max(tool) AS last_tool
    FROM _archive_calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND verdict IN ('infrastructure', 'tool_failure')
    GROUP BY ALL
),
around AS (
    SELECT
        s.tool_hash, s.unit,
        unnest([
            {aspect: 'previous', test: 'equals', value: previous},
            -- Failures of one tool follow each other for any cause.
            {aspect: 'previous', test: 'failed',
                value: if(_failed(ended_as) AND previous <> s.tool, 'yes', NULL)},
            {aspect: 'place', test: 'first', value: if(place = 1, 'yes', NULL)},
            {aspect: 'place', test: 'late', value: if(place > 10, 'yes', NULL)},
            {aspect: 'concurrent', test: 'open', value: if(busy_until > requested_at, 'yes', NULL)},
            {aspect: 'others', test: 'fail',
                value: if(first_tool <> s.tool OR last_tool <> s.tool, 'yes', NULL)},
            {aspect: 'latency', test: 'at_least', value: if(latency_ms >= 10000, '10', NULL)},
            {aspect: 'hour', test: 'equals', value: hour(requested_at)::VARCHAR}
        ]) AS fact
    FROM surroundings s
    JOIN neighbours USING (call_id)
    LEFT JOIN bad_minutes b ON b.server IS NOT DISTINCT FROM s.server
        AND b.minute = time_bucket(INTERVAL 1 MINUTE, s.requested_at)
),
moments AS (
    SELECT
        tool_hash,
        quantile_disc(requested_at, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]) AS moments
    FROM surroundings
    GROUP BY tool_hash
),
facts AS (
    SELECT u.tool_hash, u.unit, 'argument' AS aspect, path, test, value
    FROM (
        SELECT DISTINCT tool_hash, arguments_hash, path, fact.test AS test, fact.value AS value
        FROM tried
        WHERE fact.value IS NOT NULL
    )
    JOIN units u USING (tool_hash, arguments_hash)
    UNION ALL
    SELECT tool_hash, unit, fact.aspect, fact.path, fact.test, fact.value
    FROM (
        SELECT
            tool_hash, unit,
            unnest([
                -- A JSON pointer, written like the paths of arguments.
                {aspect: 'schema', path: nullif(replace(
                        regexp_replace(substring(input_schema_path, 2), '/\d+\b', '[]', 'g'), '/', '.'), ''),
                    test: 'invalid',
                    value: if(input_schema_state = 'invalid', 'yes', NULL)},
                {aspect: 'model', path: NULL, test: 'equals', value: model},
                {aspect: 'client', path: NULL, test: 'equals', value: client},
                {aspect: 'client_version', path: client, test: 'equals', value: client_version},
                {aspect: 'server_version', path: NULL, test: 'equals', value: server_version},
                {aspect: 'protocol_version', path: NULL, test: 'equals', value: protocol_version},
                {aspect: 'transport', path: NULL, test: 'equals', value: transport},
                {aspect: 'request_bytes', path: NULL, test: 'at_least',
                    value: if(request_bytes >= 10000, '10000', NULL)},
                {aspect: 'request_bytes', path: NULL, test: 'at_least',
                    value: if(request_bytes >= 100000, '100000', NULL)}
            ]) AS fact
        FROM surroundings
    )
    WHERE fact.value IS NOT NULL
    UNION ALL
    SELECT tool_hash, unit, fact.aspect, NULL, fact.test, fact.value
    FROM around
    WHERE fact.value IS NOT NULL
    UNION ALL
    SELECT tool_hash, unit, 'time', NULL, 'since', strftime(moment, '%Y-%m-%d %H:%M:%S')
    FROM (
        SELECT tool_hash, unit, requested_at, unnest(moments) AS moment
        FROM surroundings
        JOIN moments USING (tool_hash)
    )
    WHERE requested_at >= moment
),
numbered AS MATERIALIZED (
    SELECT
        tool_hash, aspect, path, test, value, list(unit) AS fact_units,
        -- Of facts that separate equally well, the first is reported.
        row_number() OVER (
            PARTITION BY tool_hash
            ORDER BY list_position(['argument', 'schema', 'model', 'client', 'client_version',
                    'server_version', 'protocol_version', 'transport', 'time', 'request_bytes',
                    'others', 'previous', 'place', 'concurrent', 'latency', 'hour'], aspect),
                list_position(['empty', 'blank', 'given', 'equals', 'sign', 'items', 'form',
                    'type', 'at_least', 'longer'], test),
                length(path), path, value
        ) - 1 + if(aspect IN ('others', 'previous', 'place', 'concurrent', 'latency', 'hour'), 1000000, 0)
            AS fact
    FROM facts
    GROUP BY tool_hash, aspect, path, test, value
    HAVING count(*) >= 3
),
pairs AS MATERIALIZED (SELECT tool_hash, fact, unnest(fact_units) AS unit FROM numbered),
separated AS MATERIALIZED (
    SELECT
        tool_hash,
        unnest(contrasts(classes, sessions, pair_units, pair_facts), recursive := true)
    FROM (
        SELECT
            tool_hash, list(class_hash ORDER BY unit) AS classes,
            list(session_hash ORDER BY unit) AS sessions
        FROM units
        GROUP BY tool_hash
    )
    JOIN (
        SELECT tool_hash, list(unit) AS pair_units, list(fact) AS pair_facts
        FROM pairs
        GROUP BY tool_hash
    ) USING (tool_hash)
),
values_named AS MATERIALIZED (
    SELECT DISTINCT s.tool_hash, s.fact, n.path, n.value
    FROM separated s
    JOIN numbered n ON n.tool_hash = s.tool_hash AND (n.fact = s.fact OR n.fact = s.other)
    WHERE n.aspect = 'argument' AND n.test = 'equals'
),
-- A value that would be masked says nothing.
found AS MATERIALIZED (
    SELECT s.* REPLACE (if(masked.fact IS NULL, s.fact, -1) AS fact, if(masked.fact IS NULL, s.other, -1) AS other)
    FROM separated s
    LEFT JOIN (SELECT DISTINCT tool_hash, fact FROM values_named WHERE is_masked(path, value)) masked
        USING (tool_hash, fact)
),
-- For each group, the calls to its tool by session, with what was found and without it.
held AS (
    SELECT
        tool_hash, class_hash, session_hash, holds,
        sum(n)::DOUBLE AS calls, sum(if(failed, n, 0))::DOUBLE AS failed
    FROM (
        SELECT
            f.tool_hash, f.class_hash, u.session_hash, u.n, u.class_hash = f.class_hash AS failed,
            (a.unit IS NOT NULL) <> f.absent
                AND (f.other < 0 OR (b.unit IS NOT NULL) <> f.other_absent) AS holds
        FROM found f
        JOIN units u ON u.tool_hash = f.tool_hash
        LEFT JOIN pairs a ON a.tool_hash = f.tool_hash AND a.fact = f.fact AND a.unit = u.unit
        LEFT JOIN pairs b ON b.tool_hash = f.tool_hash AND b.fact = f.other AND b.unit = u.unit
        WHERE f.fact >= 0
    )
    GROUP BY tool_hash, class_hash, session_hash, holds
),
counted AS (
    SELECT
        tool_hash, class_hash,
        sum(failed) FILTER (holds)::BIGINT AS failed_with,
        sum(calls) FILTER (holds)::BIGINT AS calls_with,
        sum(failed) FILTER (NOT holds)::BIGINT AS failed_without,
        sum(calls) FILTER (NOT holds)::BIGINT AS calls_without,
        count(*) FILTER (holds AND failed > 0) AS sessions_with,
        _interval(_moments(if(holds, h.calls, 0), if(holds, h.failed, 0))) AS with_it,
        _interval(_moments(if(holds, 0, h.calls), if(holds, 0, h.failed))) AS without_it
    FROM held h
    GROUP BY tool_hash, class_hash
)
SELECT
    e.server, e.tool, coalesce(e.template, '(no text: ' || e.outcome || ')') AS template, e.verdict, c.calls,
    coalesce(w.also_worked, 0) AS also_worked,
    a.aspect, a.path, a.test, a.value, if(a.test IS NULL, NULL, f.absent) AS absent,
    b.aspect AS and_aspect, b.path AS and_path, b.test AS and_test, b.value AS and_value,
    if(b.test IS NULL, NULL, f.other_absent) AS and_absent,
    failed_with, calls_with, with_it.low AS share_with_low, with_it.high AS share_with_high,
    failed_without, calls_without, without_it.low AS share_without_low,
    without_it.high AS share_without_high, sessions_with,
    if(a.test IS NULL, NULL, f.effect) AS effect, if(a.test IS NULL, NULL, f.p_value) AS p_value,
    c.units > 1000 AS sampled,
    -- Whether the tool's own schema offers the value, so that sending it is not a mistake.
    CASE WHEN a.test = 'equals' AND a.aspect = 'argument' AND json_valid(t.input_schema) THEN
        coalesce(list_contains(
            TRY_CAST(json_extract(t.input_schema, '/properties/' || replace(replace(a.path, '~', '~0'), '/', '~1') || '/enum') AS VARCHAR[]), a.value
        ), false) OR coalesce(json_extract_string(t.input_schema, '/properties/' || replace(replace(a.path, '~', '~0'), '/', '~1') || '/default') = a.value, false)
    END AS offered,
    c.call_id
FROM found f
JOIN classes c USING (tool_hash, class_hash)
JOIN calls e ON e.call_id = c.call_id
LEFT JOIN also_worked w USING (tool_hash, class_hash)
LEFT JOIN counted USING (tool_hash, class_hash)
LEFT JOIN numbered a ON a.tool_hash = f.tool_hash AND a.fact = f.fact AND f.fact >= 0
LEFT JOIN numbered b ON b.tool_hash = f.tool_hash AND b.fact = f.other AND f.other >= 0
LEFT JOIN _archive_tools t ON t.definition = e.definition AND t.server IS NOT DISTINCT FROM e.server
ORDER BY c.calls DESC, e.server, e.tool, template, verdict
