-- Calls whose outcome could be predicted before they were made, with prediction and outcome: a dry
-- run refuses the call, or the server's own validation had answered about it.
WITH definitions AS MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool), hash(definition)) AS id,
        any_value(definition) AS definition,
        min(first_seen) AS first_seen, any_value(input_schema) AS input_schema
    FROM tools
    GROUP BY id
),
-- Equal arguments are checked once. Most schemas have no semantic constraints and are skipped.
semantic_errors AS MATERIALIZED (
    SELECT arguments_hash, meaning_error(input_schema, arguments) AS meaning
    FROM (
        SELECT arguments_hash, any_value(m.input_schema) AS input_schema,
            any_value(arguments) AS arguments
        FROM _unvalidated_calls a
        JOIN (
            SELECT definition, any_value(input_schema) AS input_schema
            FROM definitions
            GROUP BY definition
            HAVING has_meaning(any_value(input_schema))
        ) m USING (definition)
        WHERE input_schema_state = 'valid' AND arguments IS NOT NULL
        GROUP BY arguments_hash
    )
    WHERE meaning IS NOT NULL
),
candidates AS (
    SELECT
        tool_hash, session_hash, requested_at, outcome, verdict, validated_as,
        input_schema_path, input_schema_error, meaning,
        hash(hash(server), hash(tool), hash(definition)) AS id, input_schema_state
    FROM _unvalidated_calls
    LEFT JOIN semantic_errors USING (arguments_hash)
    LEFT JOIN (
        SELECT call_id, true AS is_validated, validated_as
        FROM seed_scores
        WHERE validated_by IS NOT NULL
    ) USING (call_id)
    WHERE is_validated OR input_schema_state = 'invalid'
        OR input_schema_state = 'valid' AND meaning IS NOT NULL
)
SELECT
    c.* EXCLUDE (id, input_schema_state),
    -- Only a definition that was listed before the call could have refused it.
    CASE
        WHEN first_seen > requested_at THEN NULL
        WHEN input_schema_state = 'invalid' THEN 'schema'
        WHEN input_schema_state = 'valid' AND d.definition IS NOT NULL
            AND meaning IS NOT NULL THEN 'semantic'
    END AS dry_run_phase,
    outcome = 'ok' AS worked,
    _failed(outcome) AS failed,
    -- No validation can predict these failures, so they say nothing about the validation's quality.
    coalesce(_is_unforeseeable(verdict), false) AS unforeseeable,
    dry_run_phase IS NOT NULL OR coalesce(NOT validated_as, false) AS refused
FROM candidates c
LEFT JOIN definitions d USING (id)
