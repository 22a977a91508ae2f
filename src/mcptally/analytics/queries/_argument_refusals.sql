-- The argument that each refusal of `_refused_arguments` concerns; null: none.
-- A refusal concerns an argument if the schema refuses that argument, or if the message has its
-- name or the value that was sent. It may concern several.
WITH refusals AS MATERIALIZED (
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
    FROM _refused_arguments
    WHERE definition IS NOT NULL
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
    SELECT DISTINCT refusal_hash, d.server, d.definition, invalid, d.name AS argument
    FROM refusals r
    JOIN declared d ON d.definition = r.definition AND d.server IS NOT DISTINCT FROM r.server
    WHERE CASE
        WHEN invalid THEN invalid_pointer = pointer
        ELSE contains(said, words) OR (
            length(json_extract_string(sent, pointer)) > 3
            AND contains(message, json_extract_string(sent, pointer))
        )
    END
)
FROM found
UNION ALL BY NAME
SELECT refusal_hash, server, definition, invalid FROM refusals ANTI JOIN found USING (refusal_hash)
