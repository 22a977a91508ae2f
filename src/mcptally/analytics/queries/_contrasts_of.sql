-- The rows of `contrasts` about some tools.
-- Of: wanted
-- `wanted` lists servers and tools, each joined by a null character; null: all tools.
WITH read AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool)) AS tool_hash, call_id, server, tool, session, requested_at,
        latency_ms, outcome, left(error_text, 600) AS error_text, template, verdict, definition,
        arguments, input_schema_state, input_schema_path, model, client, client_version,
        server_version, protocol_version, transport, request_bytes
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND _in_sample(session)
),
judged AS MATERIALIZED (
    SELECT
        * EXCLUDE (outcome, error_text, template, verdict, definition),
        if(outcome = 'ok', 0, hash(hash(coalesce(template, outcome)), hash(verdict))) AS class_hash,
        hash(session) AS session_hash, hash(arguments) AS arguments_hash,
        -- Masked values may differ.
        arguments IS NOT NULL AND NOT contains(arguments, '[redacted:') AS comparable,
        coalesce(strlen(arguments) > 100000, false) AS unread
    FROM read
    SEMI JOIN (
        SELECT tool_hash
        FROM read
        WHERE _failed(outcome) AND (wanted IS NULL OR list_contains(wanted, concat(server, chr(0), tool)))
    ) USING (tool_hash)
    WHERE tool IS NOT NULL AND _ended(outcome)
),
-- Calls with the same arguments in a session are one distinct call.
distinct_calls AS MATERIALIZED (
    SELECT
        tool_hash, class_hash, session_hash, arguments_hash, count(*) AS n,
        bool_and(comparable) AS comparable, bool_or(unread) AS unread, min(call_id) AS call_id
    FROM judged
    GROUP BY tool_hash, class_hash, session_hash, arguments_hash
),
classes AS MATERIALIZED (
    SELECT
        tool_hash, class_hash, sum(n)::BIGINT AS calls, min(call_id) AS call_id, count(*) AS units
    FROM distinct_calls
    GROUP BY tool_hash, class_hash
),
-- The groups that are examined, and the calls to their tools that worked.
compared AS MATERIALIZED (
    SELECT tool_hash, class_hash, count(*) OVER () AS groups
    FROM classes
    SEMI JOIN (SELECT tool_hash FROM classes WHERE class_hash = 0 AND _enough_calls(units)) USING (tool_hash)
    WHERE class_hash <> 0 AND _enough_calls(units)
    ORDER BY calls DESC, call_id
    LIMIT 500
),
-- Failing calls whose arguments worked in another call.
also_worked AS (
    SELECT tool_hash, class_hash, sum(n)::BIGINT AS also_worked
    FROM distinct_calls
    SEMI JOIN compared USING (tool_hash, class_hash)
    SEMI JOIN (SELECT tool_hash, arguments_hash FROM distinct_calls WHERE class_hash = 0 AND comparable)
        USING (tool_hash, arguments_hash)
    WHERE comparable
    GROUP BY tool_hash, class_hash
),
sample AS (
    SELECT tool_hash, class_hash, session_hash, arguments_hash, n, unread, call_id
    FROM distinct_calls
    SEMI JOIN (
        SELECT tool_hash, class_hash FROM compared UNION ALL SELECT tool_hash, 0 FROM compared
    )
        USING (tool_hash, class_hash)
    QUALIFY row_number() OVER (
        PARTITION BY tool_hash, class_hash ORDER BY hash(session_hash, arguments_hash)) <= 300
),
units AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY tool_hash ORDER BY call_id) - 1 AS unit
    FROM sample
),
-- The calls in the same sessions, in order; filters do not apply to the context of a call.
neighbours AS MATERIALIZED (
    SELECT
        call_id, lag(tool) OVER calls_before AS previous, lag(outcome) OVER calls_before AS ended_as,
        row_number() OVER calls_before AS place,
        -- A call without a recorded answer has no known end.
        max(requested_at + to_milliseconds(latency_ms)) OVER (
            PARTITION BY session ORDER BY requested_at, call_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM _unfiltered('read')
    SEMI JOIN (SELECT DISTINCT session FROM judged) USING (session)
    WINDOW calls_before AS (PARTITION BY session ORDER BY requested_at, call_id)
),
-- The minutes in which tools of a server failed for reasons other than the request.
bad_minutes AS (
    SELECT
        server, time_bucket(INTERVAL 1 MINUTE, requested_at) AS minute, min(tool) AS first_tool,
        max(tool) AS last_tool
    FROM _unfiltered('read')
    WHERE verdict IN ('infrastructure', 'tool_failure')
    GROUP BY ALL
),
calls_with_other_failures AS MATERIALIZED (
    SELECT j.call_id
    FROM judged j
    JOIN bad_minutes b ON b.server IS NOT DISTINCT FROM j.server
        AND b.minute = time_bucket(INTERVAL 1 MINUTE, j.requested_at)
    WHERE b.first_tool <> j.tool OR b.last_tool <> j.tool
),
calls_in_context AS (
    SELECT
        j.* EXCLUDE (arguments), n.* EXCLUDE (call_id),
        call_id IN (FROM calls_with_other_failures) AS others_fail
    FROM judged j
    SEMI JOIN compared USING (tool_hash)
    JOIN neighbours n USING (call_id)
),
surroundings AS MATERIALIZED (
    SELECT
        tool_hash, class_hash, session_hash, arguments_hash, call_id, requested_at, paths, facts
    FROM _call_facts('calls_in_context')
),
-- All calls, also the repeated ones, for which the compared calls stand.
repetitions AS MATERIALIZED (
    SELECT tool_hash, unit, n, requested_at, paths, facts
    FROM units u
    JOIN surroundings s USING (tool_hash, class_hash, session_hash, arguments_hash)
),
moments AS (
    SELECT
        tool_hash, unnest(
            quantile_disc(requested_at, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])) AS moment
    FROM judged
    SEMI JOIN compared USING (tool_hash)
    SEMI JOIN distinct_calls USING (call_id)
    GROUP BY tool_hash
),
documents AS (
    SELECT tool_hash, arguments_hash, any_value(arguments) AS arguments
    FROM judged
    SEMI JOIN units USING (call_id)
    GROUP BY tool_hash, arguments_hash
),
-- `share` is the share of a distinct call's repetitions that a row is about.
facts AS (
    SELECT tool_hash, unit, path, fact, 1.0 AS share
    FROM (
        SELECT DISTINCT tool_hash, arguments_hash, path, fact
        FROM (
            SELECT
                tool_hash, arguments_hash, path,
                unnest(_value_facts(type, said, items, members, number)) AS fact
            FROM _argument_values('documents')
        )
        WHERE fact IS NOT NULL
    )
    JOIN units USING (tool_hash, arguments_hash)
    UNION ALL
    SELECT tool_hash, unit, path, fact, 1 / n
    FROM (
        SELECT tool_hash, unit, n, unnest(paths) AS path, unnest(facts) AS fact FROM repetitions
    )
    WHERE fact IS NOT NULL
    UNION ALL
    SELECT tool_hash, unit, NULL, m.words, 1 / n
    FROM repetitions r
    JOIN (
        SELECT
            DISTINCT tool_hash, date_trunc('second', moment) AS moment,
            'time since ' || strftime(moment, '%Y-%m-%d %H:%M:%S') AS words
        FROM moments
    ) m USING (tool_hash)
    WHERE r.requested_at >= m.moment
),
numbered AS MATERIALIZED (
    SELECT
        tool_hash, path, fact AS words, split_part(fact, ' ', 1) AS aspect,
        split_part(fact, ' ', 2) AS test, substring(fact, length(aspect) + length(test) + 3) AS value,
        fact_units, fact_shares,
        -- If facts separate equally well, the first is reported.
        row_number() OVER (
            PARTITION BY tool_hash
            ORDER BY list_position(['argument', 'schema', 'model', 'client', 'client_version',
                    'server_version', 'protocol_version', 'transport', 'time', 'request_bytes',
                    'others', 'previous', 'place', 'concurrent', 'latency', 'hour'], aspect),
                list_position(['at', 'empty', 'blank', 'given', 'equals', 'ends', 'sign', 'items',
                    'form', 'type', 'at_least', 'longer'], test),
                length(path), path, value
        ) - 1 + CASE
            WHEN aspect = 'argument' THEN 0
            WHEN aspect IN ('others', 'previous', 'place', 'concurrent', 'latency', 'hour') THEN 2000000
            ELSE 1000000
        END AS fact
    FROM (
        SELECT tool_hash, path, fact, list(unit) AS fact_units, list(share) AS fact_shares
        FROM facts
        GROUP BY tool_hash, path, fact
        HAVING count(*) >= 3
    )
),
pairs AS MATERIALIZED (
    SELECT tool_hash, fact, unnest(fact_units) AS unit, unnest(fact_shares) AS share FROM numbered
),
failed_units AS MATERIALIZED (
    SELECT u.tool_hash, u.unit, u.class_hash, _lower_words(error_text) AS message
    FROM units u
    JOIN read USING (call_id)
    WHERE u.class_hash <> 0 AND error_text IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY u.tool_hash, u.class_hash ORDER BY u.unit) <= 20
),
messages AS (
    SELECT tool_hash, class_hash, arg_min(message, unit) AS message
    FROM failed_units
    GROUP BY tool_hash, class_hash
),
-- The facts about an argument that the group's first message names, or whose value most messages contain.
named AS (
    SELECT m.tool_hash, m.class_hash, n.fact
    FROM messages m
    JOIN numbered n ON n.tool_hash = m.tool_hash AND n.aspect IN ('argument', 'schema')
        AND contains(m.message, _lower_words(regexp_extract(n.path, '[^.]*$')))
    UNION
    SELECT u.tool_hash, u.class_hash, n.fact
    FROM numbered n
    JOIN pairs p USING (tool_hash, fact)
    JOIN failed_units u ON u.tool_hash = p.tool_hash AND u.unit = p.unit
    WHERE n.aspect = 'argument' AND n.test IN ('equals', 'ends')
    GROUP BY u.tool_hash, u.class_hash, n.fact
    HAVING 2 * count(*) FILTER (contains(u.message, nullif(_lower_words(n.value), ' '))) > count(*)
),
separated AS MATERIALIZED (
    SELECT
        tool_hash,
        unnest(contrasts(
            classes, sessions, pair_units, pair_facts, pair_shares, unread,
            coalesce(named_classes, []), coalesce(named_facts, []),
            coalesce(value_facts, []), coalesce(value_paths, [])
        ), recursive := true)
    FROM (
        SELECT
            tool_hash, list(class_hash ORDER BY unit) AS classes,
            list(session_hash ORDER BY unit) AS sessions,
            coalesce(list(unit ORDER BY unit) FILTER (unread), []) AS unread
        FROM units
        GROUP BY tool_hash
    )
    JOIN (
        SELECT
            tool_hash, list(unit) AS pair_units, list(fact) AS pair_facts, list(share) AS pair_shares
        FROM pairs
        GROUP BY tool_hash
    ) USING (tool_hash)
    LEFT JOIN (
        SELECT tool_hash, list(class_hash) AS named_classes, list(fact) AS named_facts
        FROM named
        GROUP BY tool_hash
    ) USING (tool_hash)
    LEFT JOIN (
        SELECT
            tool_hash, list(fact ORDER BY fact) AS value_facts,
            list(hash(path, test) ORDER BY fact) AS value_paths
        FROM numbered
        WHERE aspect = 'argument' AND test IN ('equals', 'ends')
        GROUP BY tool_hash
    ) USING (tool_hash)
),
-- The values of an argument that a group's calls have repeatedly and working calls never.
value_sets AS MATERIALIZED (
    SELECT
        s.tool_hash, s.class_hash, n.fact, n.value, n.fact <> s.fact AS is_other,
        bool_or(is_masked(n.path, n.value)) AS is_masked
    FROM separated s
    JOIN numbered found ON found.tool_hash = s.tool_hash AND found.fact = s.fact
    JOIN numbered n ON n.tool_hash = s.tool_hash AND n.path = found.path AND n.test = found.test
        AND n.aspect = 'argument'
    JOIN pairs p ON p.tool_hash = n.tool_hash AND p.fact = n.fact
    JOIN units u ON u.tool_hash = p.tool_hash AND u.unit = p.unit
    WHERE s.one_of AND u.class_hash IN (0, s.class_hash)
    GROUP BY s.tool_hash, s.class_hash, n.fact, n.value, is_other
    HAVING count(*) FILTER (u.class_hash <> 0) >= 2 AND count(*) FILTER (u.class_hash = 0) = 0
),
-- The facts that were found, except facts whose value would be masked.
reported AS MATERIALIZED (
    SELECT
        n.tool_hash, n.fact, n.words, n.aspect, n.path, n.test, n.value,
        n.aspect = 'argument' AND n.test IN ('equals', 'ends') AND is_masked(n.path, n.value) AS is_masked
    FROM numbered n
    SEMI JOIN (
        SELECT tool_hash, fact FROM separated UNION SELECT tool_hash, other FROM separated
        UNION SELECT tool_hash, fact FROM value_sets
    ) USING (tool_hash, fact)
),
found AS MATERIALIZED (
    SELECT
        s.* EXCLUDE (fact, other), v.other_values,
        coalesce(a.is_masked, false) OR coalesce(b.is_masked, false) OR coalesce(v.is_masked, false)
            AS masked,
        if(masked, NULL, a) AS a, if(masked, NULL, b) AS b
    FROM separated s
    LEFT JOIN reported a ON a.tool_hash = s.tool_hash AND a.fact = s.fact
    LEFT JOIN reported b ON b.tool_hash = s.tool_hash AND b.fact = s.other
    LEFT JOIN (
        SELECT
            tool_hash, class_hash, bool_or(is_masked) AS is_masked,
            list(value ORDER BY fact) FILTER (is_other) AS other_values
        FROM value_sets
        GROUP BY tool_hash, class_hash
    ) v ON v.tool_hash = s.tool_hash AND v.class_hash = s.class_hash
),
-- The facts are counted in all calls to the tool, not only in the calls that were compared.
all_documents AS (
    SELECT tool_hash, arguments_hash, any_value(arguments) AS arguments
    FROM judged
    SEMI JOIN (FROM reported WHERE aspect = 'argument') USING (tool_hash)
    GROUP BY tool_hash, arguments_hash
),
holding AS MATERIALIZED (
    SELECT DISTINCT r.tool_hash, r.fact, v.arguments_hash AS key
    FROM reported r
    JOIN _argument_values('all_documents') v ON v.tool_hash = r.tool_hash AND v.path = r.path
    WHERE r.aspect = 'argument' AND list_contains(
        _value_facts(v.type, v.said, v.items, v.members, v.number), r.words)
    UNION ALL
    SELECT r.tool_hash, r.fact, hash(c.call_id)
    FROM reported r
    JOIN surroundings c USING (tool_hash)
    WHERE r.aspect <> 'argument' AND if(
        r.aspect = 'time', c.requested_at >= TRY_CAST(r.value || '+00' AS TIMESTAMPTZ),
        list_contains(c.facts, r.words)
            AND c.paths[list_position(c.facts, r.words)] IS NOT DISTINCT FROM r.path)
),
holding_sets AS (
    SELECT DISTINCT s.tool_hash, s.class_hash, h.key
    FROM value_sets s
    JOIN holding h USING (tool_hash, fact)
),
counted_calls AS (
    SELECT tool_hash, class_hash, session_hash, arguments_hash, unread, hash(call_id) AS call_hash, 1 AS n
    FROM judged
    SEMI JOIN (FROM reported WHERE aspect <> 'argument') USING (tool_hash)
    UNION ALL
    SELECT tool_hash, class_hash, session_hash, arguments_hash, unread, NULL, n
    FROM distinct_calls
    SEMI JOIN reported USING (tool_hash)
    ANTI JOIN (FROM reported WHERE aspect <> 'argument') USING (tool_hash)
),
-- For each group, the calls to its tool by session, with and without the fact.
held AS (
    SELECT
        tool_hash, class_hash, session_hash, holds,
        sum(n)::DOUBLE AS calls, sum(if(is_failed, n, 0))::DOUBLE AS failed,
        sum(if(is_ok, n, 0)) AS worked
    FROM (
        SELECT
            f.tool_hash, f.class_hash, c.session_hash, c.n,
            c.class_hash = f.class_hash AS is_failed, c.class_hash = 0 AS is_ok,
            (a.key IS NOT NULL OR s.key IS NOT NULL) <> f.absent
                AND (f.b.fact IS NULL OR (b.key IS NOT NULL) <> f.other_absent) AS holds
        FROM found f
        JOIN counted_calls c ON c.tool_hash = f.tool_hash
        LEFT JOIN holding a ON a.tool_hash = f.tool_hash AND a.fact = f.a.fact
            AND a.key = if(f.a.aspect = 'argument', c.arguments_hash, c.call_hash)
        LEFT JOIN holding_sets s ON s.tool_hash = f.tool_hash AND s.class_hash = f.class_hash
            AND s.key = c.arguments_hash
        LEFT JOIN holding b ON b.tool_hash = f.tool_hash AND b.fact = f.b.fact
            AND b.key = if(f.b.aspect = 'argument', c.arguments_hash, c.call_hash)
        WHERE f.a.fact IS NOT NULL
            AND NOT (c.unread AND 'argument' IN (f.a.aspect, coalesce(f.b.aspect, '')))
    )
    GROUP BY tool_hash, class_hash, session_hash, holds
),
counted AS (
    SELECT
        tool_hash, class_hash,
        sum(failed) FILTER (holds)::BIGINT AS failed_with,
        sum(calls) FILTER (holds)::BIGINT AS calls_with,
        sum(worked) FILTER (holds)::BIGINT AS worked_with,
        sum(failed) FILTER (NOT holds)::BIGINT AS failed_without,
        sum(calls) FILTER (NOT holds)::BIGINT AS calls_without,
        count(*) FILTER (holds AND failed > 0) AS sessions_with,
        _interval(_moments(if(holds, h.calls, 0), if(holds, h.failed, 0))) AS with_it,
        _interval(_moments(if(holds, 0, h.calls), if(holds, 0, h.failed))) AS without_it
    FROM held h
    GROUP BY tool_hash, class_hash
    HAVING failed_with * coalesce(calls_without, 0) >= 2 * coalesce(failed_without, 0) * calls_with
),
told AS (
    SELECT
        f.* REPLACE (if(c.tool_hash IS NULL, NULL, f.a) AS a, if(c.tool_hash IS NULL, NULL, f.b) AS b),
        c.* EXCLUDE (tool_hash, class_hash)
    FROM found f
    LEFT JOIN counted c USING (tool_hash, class_hash)
)
SELECT
    e.server, e.tool, coalesce(e.template, '(no text: ' || e.outcome || ')') AS template, e.verdict, c.calls,
    coalesce(w.also_worked, 0) AS also_worked,
    f.a.aspect, f.a.path, f.a.test, f.a.value, if(f.a.fact IS NULL, NULL, f.absent) AS absent,
    f.b.aspect AS and_aspect, f.b.path AS and_path, f.b.test AS and_test, f.b.value AS and_value,
    if(f.b.fact IS NULL, NULL, f.other_absent) AS and_absent,
    if(f.a.fact IS NULL, NULL, f.other_values) AS other_values,
    failed_with, calls_with, worked_with, with_it.low AS share_with_low, with_it.high AS share_with_high,
    failed_without, calls_without, without_it.low AS share_without_low,
    without_it.high AS share_without_high, sessions_with,
    if(f.a.fact IS NULL, NULL, f.effect) AS effect, if(f.a.fact IS NULL, NULL, f.p_value) AS p_value,
    _number_of_calls() > 250000 AS sampled,
    (SELECT any_value(groups) - count(*) FROM compared) AS not_compared,
    -- Whether the tool's own schema offers the value, so that sending it is not a mistake.
    CASE WHEN f.a.test = 'equals' AND f.a.aspect = 'argument' AND json_valid(t.input_schema) THEN
        coalesce(list_contains(
            TRY_CAST(json_extract(t.input_schema, '/properties/' || replace(replace(f.a.path, '~', '~0'), '/', '~1') || '/enum') AS VARCHAR[]), f.a.value
        ), false) OR coalesce(json_extract_string(t.input_schema, '/properties/' || replace(replace(f.a.path, '~', '~0'), '/', '~1') || '/default') = f.a.value, false)
    END AS offered,
    c.call_id
FROM told f
JOIN classes c USING (tool_hash, class_hash)
JOIN read e ON e.call_id = c.call_id
LEFT JOIN also_worked w USING (tool_hash, class_hash)
LEFT JOIN _archive_tools t ON t.definition = e.definition AND t.server IS NOT DISTINCT FROM e.server
ORDER BY c.calls DESC, e.server, e.tool, template, verdict
