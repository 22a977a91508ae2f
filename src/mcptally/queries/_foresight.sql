-- Calls of tools that could have been foreseen: what was said or known before each, what came of it.
WITH known AS (
    SELECT
        c.*,
        -- Only a definition that had been listed by then could have refused the call.
        CASE
            WHEN t.first_seen > c.requested_at THEN NULL
            WHEN c.input_schema_state = 'invalid' THEN 'schema'
            WHEN c.input_schema_state = 'valid' AND t.means
                AND meaning_error(t.input_schema, c.arguments) IS NOT NULL THEN 'semantic'
        END AS dry_run_phase,
        t.input_schema
    FROM calls c
    LEFT JOIN (
        -- Most schemas say nothing about meaning: their calls need not be looked at one by one.
        SELECT *, has_meaning(input_schema) AS means
        FROM (
            SELECT server, tool, definition, min(first_seen) AS first_seen,
                any_value(input_schema) AS input_schema
            FROM tools GROUP BY ALL
        )
    ) t USING (server, tool, definition)
    WHERE c.dir = 'c2s' AND c.method = 'tools/call' AND c.tool IS NOT NULL
        AND c.call_id NOT IN (SELECT call_id FROM validations)
)
SELECT
    server, tool, session, call_id, outcome, verdict, validated_by, validated_as, dry_run_phase,
    CASE dry_run_phase
        WHEN 'schema' THEN concat_ws(': ', nullif(input_schema_path, ''), input_schema_error)
        WHEN 'semantic' THEN meaning_error(input_schema, arguments)
    END AS dry_run_error,
    error_text, requested_at,
    -- Which calls were the same; without payloads nobody knows.
    if(arguments IS NULL, NULL, hash(server, tool, arguments)) AS same,
    outcome IN ('tool_error', 'hidden_error', 'protocol_error') AS warns,
    outcome = 'ok' AS worked,
    outcome IN ('tool_error', 'hidden_error', 'protocol_error', 'timeout', 'no_response') AS failed,
    -- Nobody can foresee these; what they say of a validation is nothing.
    coalesce(verdict IN ('infrastructure', 'ambiguous'), false) AS unforeseeable,
    dry_run_phase IS NOT NULL OR coalesce(NOT validated_as, false) AS refused
FROM known
