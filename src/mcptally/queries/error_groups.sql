-- What do failing calls say, grouped by template, and whose failure is it?
-- Shows: server, tool, template, verdict, reason, confidence, calls, sessions, example_call
WITH failed AS (
    SELECT server, tool, method, session, call_id, verdict, reason, confidence,
        requested_at,
        coalesce(error_text, '(no text: ' || outcome || ')') AS said,
        split_part(trim(said, E' \n\r\t'), E'\n', 1) AS line
    FROM calls
    WHERE outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
        AND dir = 'c2s'
),
-- What differs from call to call: quoted text, URLs, paths, ids, numbers. Each line is masked once.
templates AS MATERIALIZED (
    SELECT
        line,
        left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            line,
            '[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<url>', 'g'),
            '"[^"]*"|''[^'']*''|`[^`]*`', '<text>', 'g'),
            '(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}[\\/]?', '<path>', 'g'),
            '\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b', '<id>', 'g'),
            '-?\b\d+(?:\.\d+)?\b', '<n>', 'g'), 200) AS template
    FROM (SELECT DISTINCT line FROM failed)
)
SELECT
    server, coalesce(tool, method) AS tool, template, verdict,
    any_value(reason ORDER BY call_id) AS reason,
    avg(confidence) AS confidence,
    count(*) AS calls,
    count(DISTINCT session) AS sessions,
    min(requested_at) AS first_seen,
    max(requested_at) AS last_seen,
    left(arg_min(said, call_id), 300) AS example,
    min(call_id) AS example_call
FROM failed
JOIN templates USING (line)
GROUP BY ALL
ORDER BY calls DESC, server, tool, template, verdict
