-- What happened in each session: who spoke with whom, how long, and what failed?
-- Shows: server, client, protocol_version, started_at, seconds, calls, tool_calls, tools, errors, tool_failures, retries, result_tokens, session
WITH talks AS (
    SELECT
        session, recording,
        arg_min(session_source, seq) AS session_source,
        arg_min(server, seq) AS server,
        arg_min(client, seq) AS client,
        arg_min(client_version, seq) AS client_version,
        arg_max(protocol_version, seq) AS protocol_version,
        arg_min(transport, seq) AS transport,
        min(requested_at) AS started_at,
        max(coalesce(answered_at, cancelled_at, requested_at)) AS ended_at,
        epoch(ended_at - started_at) AS seconds,
        count(*) AS calls,
        count(*) FILTER (method = 'tools/call' AND dir = 'c2s') AS tool_calls,
        count(DISTINCT tool) AS tools,
        count(*) FILTER (outcome IN
            ('hidden_error', 'tool_error', 'protocol_error', 'timeout', 'no_response')) AS errors,
        count(*) FILTER (verdict = 'tool_failure') AS tool_failures,
        count(*) FILTER (outcome IN ('timeout', 'no_response', 'cancelled')) AS unanswered,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        sum(response_tokens) FILTER (method = 'tools/call')::BIGINT AS result_tokens
    FROM calls
    GROUP BY session, recording
)
SELECT
    t.server, t.client, t.client_version, t.protocol_version, t.transport, t.started_at,
    t.ended_at, t.seconds, t.calls, t.tool_calls, t.tools, t.errors, t.tool_failures,
    t.unanswered, t.retries, t.result_tokens, r."end" AS recording_end, r.exit_code, r.signal,
    t.session_source, t.session, t.recording
FROM talks t
LEFT JOIN recordings r USING (recording)
ORDER BY t.started_at, t.session, t.recording
