-- Refused calls (by the schema or by the server), grouped by the argument concerned.
-- One row per argument; null means no argument. `sessions` lists the calls, `call_id` is the first.
-- Calls with the same definition, error and violation count as one refusal. A refusal concerns an
-- argument if the schema refuses that argument, or if the message contains its name or the value
-- that was sent. It may concern several arguments.
WITH refused AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(definition), hash(template), hash(input_schema_path),
            hash(input_schema_error)) AS refusal_hash,
        hash(session) AS session_hash, call_id, server, definition, input_schema_state,
        input_schema_path, input_schema_error, arguments, error_text
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s' AND definition IS NOT NULL
        AND _error(outcome)
        AND _is_business(verdict)
        AND (input_schema_state = 'invalid' OR reason IN ('validation', 'unsupported_or_disabled'))
),
session_counts AS (
    SELECT refusal_hash, list({session_hash: session_hash, n: n}) AS sessions
    FROM (
        SELECT refusal_hash, session_hash, count(*) AS n
        FROM refused
        GROUP BY refusal_hash, session_hash
    )
    GROUP BY refusal_hash
),
refusals AS MATERIALIZED (
    SELECT
        refusal_hash, any_value(server) AS server, any_value(definition) AS definition,
        any_value(input_schema_state) = 'invalid' AS invalid,
        coalesce(
            '/' || nullif(split_part(any_value(input_schema_path), '/', 2), ''),
            '/' || nullif(replace(replace(regexp_extract(any_value(input_schema_error),
                '^lacks the member ''(.*)''$', 1), '~', '~0'), '/', '~1'), '')
        ) AS invalid_pointer,
        min(call_id) AS first_call,
        arg_min({arguments: arguments, error_text: error_text}, call_id) AS texts,
        struct_extract(texts, 'arguments') AS sent,
        left(struct_extract(texts, 'error_text'), 600) AS message, _lower_words(message) AS said
    FROM refused
    GROUP BY refusal_hash
),
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
found AS MATERIALIZED (
    SELECT DISTINCT refusal_hash, d.name AS argument
    FROM refusals r
    JOIN declared d ON d.definition = r.definition AND d.server IS NOT DISTINCT FROM r.server
    WHERE CASE
        WHEN invalid THEN invalid_pointer = pointer
        ELSE contains(said, words) OR (
            json_valid(sent) AND length(json_extract_string(sent, pointer)) > 3
            AND contains(message, json_extract_string(sent, pointer))
        )
    END
)
SELECT
    server, definition, argument, invalid, sessions, first_call AS call_id,
    left(sent, 300) AS sent, left(message, 300) AS message
FROM refusals
JOIN session_counts USING (refusal_hash)
LEFT JOIN found USING (refusal_hash)
