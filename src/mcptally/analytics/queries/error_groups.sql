-- Which error messages occur, grouped by template, and who is at fault?
-- Shows: server, tool, template, verdict, reason, confidence, calls, sessions, call_id
-- Servers repeat the same message often, so messages are grouped by hash and masked once each.
-- `failed` is materialized so that calls are read only once.
WITH failed AS MATERIALIZED (
    SELECT
        server, tool, method, outcome, error_text, verdict, reason, confidence, requested_at,
        call_id,
        hash(session) AS session_hash,
        xor(hash(error_text), if(error_text IS NULL, hash(hash(outcome)), 0)) AS message_hash,
        -- A hash of names is cheaper to group by than the names.
        hash(hash(server), hash(tool), if(tool IS NULL, hash(method), 0), hash(verdict))
            AS tool_hash
    FROM calls
    WHERE outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
        AND dir = 'c2s'
),
message AS MATERIALIZED (
    SELECT
        tool_hash, message_hash, reason,
        any_value(server) AS server, coalesce(any_value(tool), any_value(method)) AS tool,
        any_value(verdict) AS verdict,
        coalesce(any_value(error_text), '(no text: ' || any_value(outcome) || ')') AS message,
        sum(confidence) AS confidence, count(confidence) AS judged,
        count(*) AS calls,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen,
        min(call_id) AS call_id
    FROM failed
    GROUP BY tool_hash, message_hash, reason
),
-- A template replaces what varies from call to call: quoted text, URLs, paths, ids, numbers.
templates AS MATERIALIZED (
    SELECT
        message_hash, message,
        left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            split_part(trim(message, E' \n\r\t'), E'\n', 1),
            '[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<url>', 'g'),
            '"[^"]*"|''[^'']*''|`[^`]*`', '<text>', 'g'),
            '(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}[\\/]?', '<path>', 'g'),
            '\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b', '<id>', 'g'),
            '-?\b\d+(?:\.\d+)?\b', '<n>', 'g'), 200) AS template,
        hash(template) AS template_hash
    FROM (SELECT message_hash, any_value(message) AS message FROM message GROUP BY message_hash)
),
groups AS (
    SELECT
        tool_hash, template_hash,
        any_value(server) AS server, any_value(tool) AS tool, any_value(verdict) AS verdict,
        any_value(template) AS template,
        sum(confidence) / nullif(sum(judged), 0) AS confidence,
        sum(calls)::BIGINT AS calls,
        min(first_seen) AS first_seen, max(last_seen) AS last_seen,
        arg_min({reason: s.reason, message: s.message}, call_id) AS example,
        min(call_id) AS call_id
    FROM message s
    JOIN templates USING (message_hash)
    GROUP BY tool_hash, template_hash
),
sessions_of_messages AS (
    SELECT DISTINCT tool_hash, message_hash, session_hash FROM failed
),
session_counts AS (
    SELECT tool_hash, template_hash, count(*) AS sessions
    FROM (
        SELECT DISTINCT tool_hash, template_hash, session_hash
        FROM sessions_of_messages
        JOIN templates USING (message_hash)
    )
    GROUP BY tool_hash, template_hash
)
SELECT
    server, tool, template, verdict, example.reason AS reason, confidence, calls, sessions,
    first_seen, last_seen, left(example.message, 300) AS example, call_id
FROM groups
JOIN session_counts USING (tool_hash, template_hash)
ORDER BY calls DESC, server, tool, template, verdict
