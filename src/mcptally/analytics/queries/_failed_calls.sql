-- Calls to tools that failed. Calls with equal `kind_hash` differ only in time, session, text and
-- arguments; hashes of columns cost less than their texts.
SELECT
    *, hash(hash(server), hash(tool)) AS tool_hash,
    hash(
        tool_hash, hash(template), hash(outcome), hash(fault), hash(reason), hash(certainty),
        hash(hidden_certainty), hash(input_schema_state), hash(input_schema_error),
        hash(input_schema_path)
    ) AS kind_hash,
    hash(session) AS session_hash, hash(error_text) AS text_hash, hash(arguments) AS arguments_hash
FROM calls
WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL AND _failed(outcome)
