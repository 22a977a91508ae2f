-- The calls to tools of which `change_points` compares the times.
SELECT
    server, tool, hash(server) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash,
    session, hash(session) AS session_hash, epoch_us(requested_at)::DOUBLE AS moment,
    outcome <> 'ok' AS failed, verdict, template, call_id
FROM _tool_calls
WHERE ended AND requested_at IS NOT NULL
