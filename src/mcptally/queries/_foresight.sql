-- Calls of tools that could have been foreseen: what was said or known before each, what came of it.
-- Of: validated
-- All calls, or those that a server's own validation judged.
WITH asked AS NOT MATERIALIZED (
    SELECT *, hash(arguments) AS given
    FROM calls
    WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL
        AND (NOT validated OR validated_by IS NOT NULL)
        AND call_id NOT IN (SELECT call_id FROM validations)
),
definitions AS (
    SELECT server, tool, definition, min(first_seen) AS first_seen,
        any_value(input_schema) AS input_schema, true AS listed
    FROM tools GROUP BY ALL
),
-- The same arguments mean the same: each is looked at once, and most schemas say nothing of meaning.
meanings AS MATERIALIZED (
    SELECT definition, given, meaning_error(input_schema, arguments) AS error
    FROM (
        SELECT definition, given, any_value(input_schema) AS input_schema,
            any_value(arguments) AS arguments
        FROM asked
        JOIN (
            SELECT definition, any_value(input_schema) AS input_schema FROM definitions
            GROUP BY definition HAVING has_meaning(any_value(input_schema))
        ) USING (definition)
        WHERE input_schema_state = 'valid' AND arguments IS NOT NULL
        GROUP BY definition, given
    )
),
known AS (
    SELECT
        c.*, m.error AS meaning,
        -- Only a definition that had been listed by then could have refused the call.
        CASE
            WHEN t.first_seen > c.requested_at THEN NULL
            WHEN c.input_schema_state = 'invalid' THEN 'schema'
            WHEN c.input_schema_state = 'valid' AND t.listed
                AND m.error IS NOT NULL THEN 'semantic'
        END AS dry_run_phase
    FROM asked c
    LEFT JOIN definitions t USING (server, tool, definition)
    LEFT JOIN meanings m
        ON m.definition = c.definition AND m.given = c.given AND m.error IS NOT NULL
)
SELECT
    server, tool, session, call_id, outcome, verdict, validated_by, validated_as, dry_run_phase,
    CASE dry_run_phase
        WHEN 'schema' THEN concat_ws(': ', nullif(input_schema_path, ''), input_schema_error)
        WHEN 'semantic' THEN meaning
    END AS dry_run_error,
    error_text, requested_at,
    -- Which calls were the same; without payloads nobody knows.
    if(arguments IS NULL, NULL, hash(server, tool, given)) AS same,
    outcome IN ('tool_error', 'hidden_error', 'protocol_error') AS warns,
    outcome = 'ok' AS worked,
    outcome IN ('tool_error', 'hidden_error', 'protocol_error', 'timeout', 'no_response') AS failed,
    -- Nobody can foresee these; what they say of a validation is nothing.
    coalesce(verdict IN ('infrastructure', 'ambiguous'), false) AS unforeseeable,
    dry_run_phase IS NOT NULL OR coalesce(NOT validated_as, false) AS refused
FROM known
