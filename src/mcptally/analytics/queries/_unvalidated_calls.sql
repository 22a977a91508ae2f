-- Tool calls, except calls that ask a server to validate another call.
-- Includes hashes of names, because grouping by hashes is cheaper. Validations are rare, so only
-- calls in recordings with a validation are looked up.
WITH tool_calls AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS tool_hash, hash(session) AS session_hash,
        hash(hash(definition), hash(arguments)) AS arguments_hash
    FROM calls
    WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL
)
SELECT * FROM tool_calls ANTI JOIN validations USING (recording)
UNION ALL
SELECT * FROM tool_calls
SEMI JOIN validations USING (recording)
ANTI JOIN validations USING (recording, call_id)
