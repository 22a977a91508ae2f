-- The calls that `repeatability` compares; `same_hash` stands for the tool and its arguments.
SELECT
    hash(hash(server), hash(tool), hash(arguments)) AS same_hash,
    server, tool, outcome, session, requested_at, call_id
FROM calls
WHERE method = 'tools/call' AND dir = 'c2s' AND tool IS NOT NULL AND continued_by IS NULL
    AND _ended(outcome) AND NOT contains(arguments, '[redacted:')
