-- What happened in each session: client, server, duration, calls and failures?
-- Shows: server, client, protocol_version, started_at, seconds, calls, tool_calls, tools, failed, tool_failures, retries, response_tokens_total, session
-- None: No session was recorded.
-- Grouping by hashes of names is cheaper than grouping by names. Most sessions have one value of
-- each other key, so few rows are left from which to choose the first and the last.
WITH parts AS (
    SELECT
        hash(session) AS s, hash(recording) AS r,
        any_value(session) AS session, any_value(recording) AS recording,
        session_source, server, client, client_version, protocol_version, transport,
        min(seq) AS first_seq, max(seq) AS last_seq,
        min(requested_at) AS started_at,
        max(coalesce(answered_at, cancelled_at, requested_at)) AS ended_at,
        count(*) AS calls,
        count(*) FILTER (method = 'tools/call' AND dir = 'c2s' AND continued_by IS NULL)
            AS tool_calls,
        count(*) FILTER (_failed(outcome)) AS failed,
        count(*) FILTER (_is_tool_failure(verdict)) AS tool_failures,
        count(*) FILTER (_unanswered(outcome)) AS unanswered,
        count(*) FILTER (attempt_why = 'retry') AS retries,
        sum(response_tokens) FILTER (method = 'tools/call') AS response_tokens_total
    FROM calls
    GROUP BY s, r, session_source, server, client, client_version, protocol_version, transport
),
session_rows AS (
    SELECT
        s, r, any_value(session) AS session, any_value(recording) AS recording,
        arg_min(session_source, first_seq) AS session_source,
        arg_min(server, first_seq) AS server,
        arg_min(client, first_seq) AS client,
        arg_min(client_version, first_seq) AS client_version,
        arg_max(protocol_version, last_seq) AS protocol_version,
        arg_min(transport, first_seq) AS transport,
        min(started_at) AS started_at, max(ended_at) AS ended_at,
        epoch(max(ended_at) - min(started_at)) AS seconds,
        sum(calls)::BIGINT AS calls, sum(tool_calls)::BIGINT AS tool_calls,
        sum(failed)::BIGINT AS failed, sum(tool_failures)::BIGINT AS tool_failures,
        sum(unanswered)::BIGINT AS unanswered, sum(retries)::BIGINT AS retries,
        sum(response_tokens_total)::BIGINT AS response_tokens_total
    FROM parts
    GROUP BY s, r
),
-- A separate query: a count(DISTINCT) next to the other aggregates would keep all rows in memory.
tool_counts AS (
    SELECT s, r, count(*) AS tools
    FROM (
        SELECT DISTINCT hash(session) AS s, hash(recording) AS r, hash(tool) AS tool
        FROM calls WHERE tool IS NOT NULL
    )
    GROUP BY s, r
)
SELECT
    t.server, t.client, t.client_version, t.protocol_version, t.transport, t.started_at,
    t.ended_at, t.seconds, t.calls, t.tool_calls, coalesce(u.tools, 0) AS tools, t.failed,
    t.tool_failures, t.unanswered, t.retries, t.response_tokens_total,
    r."end" AS recording_end, r.exit_code, r.signal, t.session_source, t.session, t.recording
FROM session_rows t
LEFT JOIN tool_counts u USING (s, r)
LEFT JOIN recordings r ON r.recording = t.recording
ORDER BY t.started_at, t.session, t.recording
