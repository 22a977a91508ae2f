-- Which arguments and descriptions should be changed, ranked by the refused calls that concern them?
-- Shows: server, tool, argument, advice, refused, calls, refused_share, sent, message, call_id
-- A refusal concerns an argument if the schema refuses that argument, or if the message has its
-- name or the value that was sent. A refusal that concerns no argument concerns the description.
WITH refused AS MATERIALIZED (SELECT * FROM _refused_arguments WHERE definition IS NOT NULL),
refusals AS MATERIALIZED (
    SELECT
        refusal_hash, any_value(server) AS server, any_value(definition) AS definition,
        any_value(input_schema_state) = 'invalid' AS invalid,
        coalesce(
            '/' || nullif(split_part(any_value(input_schema_path), '/', 2), ''),
            '/' || nullif(replace(replace(regexp_extract(any_value(input_schema_error),
                '^lacks the member ''(.*)''$', 1), '~', '~0'), '/', '~1'), '')
        ) AS invalid_pointer,
        arg_min(CASE WHEN json_valid(arguments) THEN arguments END, call_id) AS sent,
        left(arg_min(error_text, call_id), 600) AS message, _lower_words(message) AS said
    FROM refused
    GROUP BY refusal_hash
),
-- The arguments of the definitions that have refusals, whether they smell or not.
declared AS (
    SELECT server, definition, name, _lower_words(name) AS words,
        '/' || replace(replace(name, '~', '~0'), '/', '~1') AS pointer
    FROM (
        SELECT server, definition, unnest(json_keys(any_value(input_schema), '/properties')) AS name
        FROM _archive_tools t
        SEMI JOIN refusals r
            ON r.definition = t.definition AND r.server IS NOT DISTINCT FROM t.server
        WHERE json_valid(input_schema)
        GROUP BY server, definition
    )
),
about_arguments AS MATERIALIZED (
    SELECT refusal_hash, d.server, d.definition, d.name
    FROM refusals r
    JOIN declared d ON d.definition = r.definition AND d.server IS NOT DISTINCT FROM r.server
    WHERE CASE
        WHEN invalid THEN invalid_pointer = pointer
        ELSE contains(said, words) OR (
            length(json_extract_string(sent, pointer)) > 3
            AND contains(message, json_extract_string(sent, pointer))
        )
    END
),
smells AS MATERIALIZED (SELECT row_number() OVER () AS place, * FROM _smells),
concerned AS (
    SELECT place, refusal_hash
    FROM about_arguments a
    JOIN smells s ON s.definition = a.definition AND s.server IS NOT DISTINCT FROM a.server
        AND s.argument = a.name
    UNION ALL
    SELECT place, refusal_hash
    FROM refusals r
    ANTI JOIN about_arguments USING (refusal_hash)
    JOIN smells s ON s.definition = r.definition AND s.server IS NOT DISTINCT FROM r.server
        AND s.argument IS NULL
    WHERE NOT invalid
),
hits AS (
    SELECT place, session_hash, count(*)::DOUBLE AS y, min(call_id) AS call_id
    FROM concerned
    JOIN refused USING (refusal_hash)
    GROUP BY place, session_hash
),
-- Calls of those definitions, by session.
called AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(definition)) AS definition_hash, hash(session) AS session_hash,
        count(*)::DOUBLE AS n
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s'
        AND hash(definition) IN (SELECT hash(definition) FROM refusals)
    GROUP BY definition_hash, session_hash
),
rates AS (
    SELECT
        place, sum(y)::BIGINT AS refused, sum(n)::BIGINT AS calls,
        count(*) FILTER (y > 0) AS sessions, min(h.call_id) AS call_id,
        _interval(_moments(n, coalesce(y, 0))) AS share
    FROM (
        SELECT place, hash(hash(server), hash(definition)) AS definition_hash FROM smells
    )
    JOIN called USING (definition_hash)
    LEFT JOIN hits h USING (place, session_hash)
    GROUP BY place
    HAVING sum(y) > 0
)
SELECT
    server, s.tool, argument, array_to_string(advice, '; ') AS advice, refused, r.calls,
    refused / r.calls AS refused_share, share.low AS refused_share_low,
    share.high AS refused_share_high,
    _insufficient_data(share.n_eff, share.low, share.high) AS insufficient_data,
    r.sessions, left(c.arguments, 300) AS sent, left(c.error_text, 300) AS message, r.call_id,
    rules, s.definition
FROM rates r
JOIN smells s USING (place)
JOIN (SELECT call_id, arguments, error_text FROM refused) c USING (call_id)
ORDER BY share.low * r.calls DESC, refused DESC, server, s.tool, argument
