-- Calls of tools that failed because of their arguments, as the schema or the server judged them.
-- `refusal_hash`: the definition and what was wrong. Most refusals of a tool say the same.
SELECT
    server, tool, definition, call_id, client, client_version, arguments, error_text,
    input_schema_state, input_schema_path, input_schema_error,
    hash(hash(server), hash(tool)) AS tool_hash, hash(session) AS session_hash,
    hash(hash(server), hash(definition), hash(template), hash(input_schema_path),
        hash(input_schema_error)) AS refusal_hash
FROM calls
WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL
    AND outcome IN ('tool_error', 'protocol_error', 'hidden_error')
    AND verdict = 'business'
    AND (input_schema_state = 'invalid' OR reason IN ('validation', 'unsupported_or_disabled'))
