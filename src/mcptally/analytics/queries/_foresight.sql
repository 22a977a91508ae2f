-- Calls of tools that could have been foreseen, and what came of them.
-- Those that a dry run refuses or a server's own validation judged. Of all other calls nothing was
-- known before: who counts them needs no look at each.
WITH definitions AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool), hash(definition)) AS id,
        any_value(definition) AS definition,
        min(first_seen) AS first_seen, any_value(input_schema) AS input_schema
    FROM tools
    GROUP BY id
),
-- The same arguments mean the same: each is looked at once; most schemas say nothing of meaning.
meanings AS MATERIALIZED (
    SELECT said, meaning_error(input_schema, arguments) AS meaning
    FROM (
        SELECT said, any_value(m.input_schema) AS input_schema, any_value(arguments) AS arguments
        FROM _asked a
        JOIN (
            SELECT definition, any_value(input_schema) AS input_schema
            FROM definitions
            GROUP BY definition
            HAVING has_meaning(any_value(input_schema))
        ) m USING (definition)
        WHERE input_schema_state = 'valid' AND arguments IS NOT NULL
        GROUP BY said
    )
    WHERE meaning IS NOT NULL
),
looked AS (
    SELECT
        kind, visit, requested_at, outcome, verdict, validated_as,
        input_schema_path, input_schema_error, meaning,
        hash(hash(server), hash(tool), hash(definition)) AS id, input_schema_state
    FROM _asked
    LEFT JOIN meanings USING (said)
    WHERE validated_by IS NOT NULL OR input_schema_state = 'invalid'
        OR input_schema_state = 'valid' AND meaning IS NOT NULL
)
SELECT
    c.* EXCLUDE (id, input_schema_state),
    -- Only a definition that had been listed by then could have refused the call.
    CASE
        WHEN first_seen > requested_at THEN NULL
        WHEN input_schema_state = 'invalid' THEN 'schema'
        WHEN input_schema_state = 'valid' AND d.definition IS NOT NULL
            AND meaning IS NOT NULL THEN 'semantic'
    END AS dry_run_phase,
    outcome = 'ok' AS worked,
    outcome IN ('tool_error', 'hidden_error', 'protocol_error', 'timeout', 'no_response') AS failed,
    -- Nobody can foresee these; what they say of a validation is nothing.
    coalesce(verdict IN ('infrastructure', 'ambiguous'), false) AS unforeseeable,
    dry_run_phase IS NOT NULL OR coalesce(NOT validated_as, false) AS refused
FROM looked c
LEFT JOIN definitions d USING (id)
