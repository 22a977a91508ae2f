-- What do failing calls of a tool have in common that its working calls lack?
-- Shows: server, tool, template, calls, absent, aspect, path, test, value, failed_with, calls_with, failed_without, calls_without
-- One row per group of failures (server, tool, template and verdict) with at least five distinct
-- failing calls, of a tool with at least five distinct calls that worked. `test` is null if nothing
-- that is tried separates them. Calls with the same arguments in a session count once for the test
-- (`statistics.contrasts`), and as often as they were made in the numbers of calls.
WITH judged AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool)) AS tool_hash,
        CASE WHEN outcome = 'ok' THEN 0
            ELSE hash(hash(coalesce(template, outcome)), hash(verdict)) END AS class_hash,
        hash(session) AS session_hash, hash(arguments) AS arguments_hash,
        call_id
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND outcome IN (
        'ok', 'tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response'
    )
),
compared AS MATERIALIZED (
    SELECT tool_hash
    FROM (
        SELECT tool_hash, class_hash, count(DISTINCT (session_hash, arguments_hash)) AS n
        FROM judged
        GROUP BY tool_hash, class_hash
    )
    GROUP BY tool_hash
    HAVING max(n) FILTER (class_hash <> 0) >= 5 AND max(n) FILTER (class_hash = 0) >= 5
),
units AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY tool_hash) - 1 AS unit
    FROM (
        SELECT *
        FROM (
            SELECT
                tool_hash, class_hash, session_hash, arguments_hash,
                count(*) AS n, min(call_id) AS call_id
            FROM judged
            SEMI JOIN compared USING (tool_hash)
            GROUP BY tool_hash, class_hash, session_hash, arguments_hash
        )
        QUALIFY row_number() OVER (PARTITION BY tool_hash, class_hash ORDER BY hash(call_id)) <= 4000
    )
),
-- The first call of each unit, with what surrounds it.
surroundings AS MATERIALIZED (
    SELECT
        u.tool_hash, u.unit, c.arguments, c.client, c.client_version, c.model, c.server_version,
        c.protocol_version, c.transport, c.requested_at, c.input_schema_state, c.input_schema_path,
        c.request_bytes,
        hour(c.requested_at) AS hour, u.arguments_hash
    FROM units u
    JOIN calls c USING (call_id)
),
documents AS (
    SELECT tool_hash, arguments_hash, any_value(arguments) AS arguments
    FROM surroundings
    WHERE length(arguments) <= 100000 AND json_valid(arguments)
    GROUP BY tool_hash, arguments_hash
),
nodes AS (
    SELECT
        tool_hash, arguments_hash, type, substring(fullkey, 3) AS place,
        regexp_replace(place, '\[\d+\]', '[]', 'g') AS path,
        atom ->> '$' AS said,
        CASE type WHEN 'ARRAY' THEN json_array_length(arguments, fullkey) END AS items,
        CASE type WHEN 'OBJECT' THEN len(json_keys(arguments, fullkey)) END AS members,
        TRY_CAST(CASE WHEN type IN ('DOUBLE', 'BIGINT', 'UBIGINT') THEN said END AS DOUBLE) AS number
    FROM documents, json_tree(arguments)
    WHERE fullkey <> '$' AND length(fullkey) <= 120 AND len(string_split(fullkey, '.')) <= 5
),
argument_facts AS (
    SELECT DISTINCT tool_hash, arguments_hash, path, found.test AS test, found.value AS value
    FROM (
        SELECT
            tool_hash, arguments_hash, path,
            unnest([
                {test: 'given', value: NULL},
                if(said = '' OR items = 0 OR members = 0, {test: 'empty', value: NULL}, NULL),
                if(trim(said) = '' AND said <> '', {test: 'blank', value: NULL}, NULL),
                if(length(said) BETWEEN 1 AND 60, {test: 'equals', value: said}, NULL),
                if(number <> 0, {test: 'number', value: if(number < 0, '< 0', '> 0')}, NULL),
                if(number <> floor(number), {test: 'number', value: 'fraction'}, NULL),
                if(abs(number) >= 1000, {test: 'number', value: '>= 1000'}, NULL),
                if(abs(number) >= 1000000, {test: 'number', value: '>= 1000000'}, NULL),
                if(items >= 2, {test: 'items', value: '2'}, NULL),
                if(items > 10, {test: 'items', value: '11'}, NULL),
                if(type = 'VARCHAR' AND said <> '', {test: 'form', value: CASE
                    WHEN regexp_full_match(left(said, 40), '[+-]?\d+(\.\d+)?') THEN 'number'
                    WHEN regexp_matches(left(said, 20), '^[A-Za-z][A-Za-z0-9+.-]*://') THEN 'url'
                    WHEN regexp_matches(left(said, 3), '^(/|~/|[A-Za-z]:[\\/])') THEN 'path'
                    WHEN regexp_full_match(left(said, 40),
                        '\d{4}-\d{2}-\d{2}([T ][0-9:.]+(Z|[+-]\d{2}:?\d{2})?)?') THEN 'date'
                    WHEN regexp_full_match(left(said, 40),
                        '[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}') THEN 'uuid'
                    WHEN regexp_full_match(left(said, 200), '[^@\s]+@[^@\s]+\.[^@\s]+') THEN 'email'
                END}, NULL),
                if(regexp_matches(left(said, 2000), '[^\x00-\x7F]'),
                    {test: 'form', value: 'non_ascii'}, NULL),
                if(contains(left(said, 2000), chr(10)), {test: 'form', value: 'lines'}, NULL),
                if(regexp_matches(left(said, 2000), '(^|[/\\])\.\.([/\\]|$)'),
                    {test: 'form', value: 'parent_path'}, NULL),
                {test: 'type', value: CASE type
                    WHEN 'VARCHAR' THEN 'text' WHEN 'ARRAY' THEN 'list' WHEN 'OBJECT' THEN 'object'
                    WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE 'number' END},
                if(length(said) > 100, {test: 'longer', value: '100'}, NULL),
                if(length(said) > 1000, {test: 'longer', value: '1000'}, NULL),
                if(length(said) > 10000, {test: 'longer', value: '10000'}, NULL)
            ]) AS found
        FROM nodes
    )
    WHERE found IS NOT NULL AND (found.value IS NOT NULL OR found.test IN ('given', 'empty', 'blank'))
),
facts AS MATERIALIZED (
    SELECT u.tool_hash, u.unit, 'argument' AS aspect, f.path, f.test, f.value
    FROM units u
    JOIN argument_facts f USING (tool_hash, arguments_hash)
    UNION ALL
    SELECT tool_hash, unit, found.aspect, found.path, found.test, found.value
    FROM (
        SELECT
            tool_hash, unit,
            unnest([
                if(input_schema_state = 'invalid', {aspect: 'schema', path: input_schema_path, test: 'invalid', value: NULL}, NULL),
                if(client IS NOT NULL, {aspect: 'client', path: NULL, test: 'equals', value: client}, NULL),
                if(client_version IS NOT NULL, {aspect: 'client_version', path: NULL, test: 'equals', value: client || ' ' || client_version}, NULL),
                if(model IS NOT NULL, {aspect: 'model', path: NULL, test: 'equals', value: model}, NULL),
                if(server_version IS NOT NULL, {aspect: 'server_version', path: NULL, test: 'equals', value: server_version}, NULL),
                {aspect: 'protocol_version', path: NULL, test: 'equals', value: protocol_version},
                {aspect: 'transport', path: NULL, test: 'equals', value: transport},
                if(request_bytes >= 10000, {aspect: 'request_bytes', path: NULL, test: '>=', value: '10000'}, NULL),
                if(request_bytes >= 100000, {aspect: 'request_bytes', path: NULL, test: '>=', value: '100000'}, NULL)
            ]) AS found
        FROM surroundings
    )
    WHERE found IS NOT NULL
    UNION ALL
    -- Eight moments of the tool's time: whether the call was made from that moment on.
    SELECT tool_hash, unit, 'time', NULL, 'since', strftime(moment, '%Y-%m-%dT%H:%M:%SZ')
    FROM (
        SELECT tool_hash, unit, requested_at, unnest(moments) AS moment
        FROM surroundings
        JOIN (
            SELECT tool_hash, quantile_disc(requested_at, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]) AS moments
            FROM surroundings GROUP BY tool_hash
        ) USING (tool_hash)
    )
    WHERE requested_at >= moment
),
numbered AS MATERIALIZED (
    SELECT
        tool_hash, aspect, path, test, value,
        row_number() OVER (
            PARTITION BY tool_hash
            ORDER BY list_position(['argument', 'schema', 'model', 'client', 'client_version',
                'server_version', 'protocol_version', 'transport', 'time', 'request_bytes'], aspect),
                list_position(['empty', 'blank', 'given', 'equals', 'number', 'items', 'form', 'type', 'longer'], test),
                length(path), path, value
        ) - 1 AS fact,
        list(unit) AS fact_units
    FROM facts
    GROUP BY tool_hash, aspect, path, test, value
    HAVING count(*) >= 3
),
flat AS (
    SELECT tool_hash, list(unit) AS pair_units, list(fact) AS pair_facts
    FROM (SELECT tool_hash, fact, unnest(fact_units) AS unit FROM numbered)
    GROUP BY tool_hash
),
found AS (
    SELECT tool_hash, unnest(contrasts(classes, sessions, pair_units, pair_facts)) AS contrast
    FROM (
        SELECT
            tool_hash, list(class_hash ORDER BY unit) AS classes,
            list(session_hash ORDER BY unit) AS sessions
        FROM units
        GROUP BY tool_hash
    )
    JOIN flat USING (tool_hash)
)
,
-- The units of each group and those that worked, and whether what was found holds for them.
held AS (
    SELECT
        f.tool_hash, f.contrast, u.n, u.session_hash, u.class_hash <> 0 AS failed,
        f.contrast.fact >= 0
        AND (a.unit IS NOT NULL) <> f.contrast.absent
        AND (f.contrast.other < 0 OR (b.unit IS NOT NULL) <> f.contrast.other_absent) AS holds
    FROM found f
    JOIN units u
        ON u.tool_hash = f.tool_hash AND (u.class_hash = 0 OR u.class_hash = f.contrast.class_hash)
    LEFT JOIN (SELECT tool_hash, fact, unnest(fact_units) AS unit FROM numbered) a
        ON a.tool_hash = f.tool_hash AND a.fact = f.contrast.fact AND a.unit = u.unit
    LEFT JOIN (SELECT tool_hash, fact, unnest(fact_units) AS unit FROM numbered) b
        ON b.tool_hash = f.tool_hash AND b.fact = f.contrast.other AND b.unit = u.unit
),
counted AS (
    SELECT
        tool_hash, contrast,
        coalesce(sum(n) FILTER (holds AND failed), 0)::BIGINT AS failed_with,
        coalesce(sum(n) FILTER (holds), 0)::BIGINT AS calls_with,
        coalesce(sum(n) FILTER (NOT holds AND failed), 0)::BIGINT AS failed_without,
        coalesce(sum(n) FILTER (NOT holds), 0)::BIGINT AS calls_without
    FROM held
    GROUP BY tool_hash, contrast
),
groups AS (
    SELECT
        hash(hash(server), hash(tool)) AS tool_hash,
        hash(hash(coalesce(template, outcome)), hash(verdict)) AS class_hash,
        any_value(server) AS server, any_value(tool) AS tool,
        any_value(coalesce(template, outcome)) AS template, any_value(verdict) AS verdict,
        count(*) AS calls, min(call_id) AS call_id
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
        AND outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
    GROUP BY ALL
)
SELECT
    g.server, g.tool, g.template, g.verdict, g.calls,
    a.aspect, a.path, a.test, a.value, if(a.test IS NULL, NULL, c.contrast.absent) AS absent,
    b.aspect AS and_aspect, b.path AS and_path, b.test AS and_test, b.value AS and_value,
    if(b.test IS NULL, NULL, c.contrast.other_absent) AS and_absent,
    failed_with, calls_with, failed_without, calls_without,
    c.contrast.effect AS effect, c.contrast.p_value AS p_value, g.call_id
FROM counted c
JOIN groups g ON g.tool_hash = c.tool_hash AND g.class_hash = c.contrast.class_hash
LEFT JOIN numbered a ON a.tool_hash = c.tool_hash AND a.fact = c.contrast.fact
LEFT JOIN numbered b ON b.tool_hash = c.tool_hash AND b.fact = c.contrast.other
ORDER BY g.calls DESC, g.server, g.tool, g.template
