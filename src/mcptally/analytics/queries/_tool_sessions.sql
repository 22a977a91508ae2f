-- Calls to tools by tool and session, which may have several rows.
SELECT
    any_value(hash(server)) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash,
    hash(session) AS session_hash, count(*) AS calls, count(*) FILTER (outcome = 'ok') AS ok,
    count(*) FILTER (ended) AS ended,
    min(requested_at) AS started, max(requested_at) AS latest
FROM _tool_calls
GROUP BY tool_hash, session_hash, requested_at IS NULL
