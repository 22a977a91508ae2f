-- What do failing calls say, grouped by template, and whose failure is it?
-- Shows: server, tool, template, verdict, reason, confidence, calls, sessions, example_call
-- Servers say the same again and again: what is said is masked once, and known by its hash.
WITH failed AS NOT MATERIALIZED (
    SELECT server, coalesce(tool, method) AS tool, session, call_id, verdict, reason, confidence,
        requested_at,
        coalesce(error_text, '(no text: ' || outcome || ')') AS said
    FROM calls
    WHERE outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
        AND dir = 'c2s'
),
-- What differs from call to call: quoted text, URLs, paths, ids, numbers.
templates AS MATERIALIZED (
    SELECT
        text,
        left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            split_part(trim(said, E' \n\r\t'), E'\n', 1),
            '[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<url>', 'g'),
            '"[^"]*"|''[^'']*''|`[^`]*`', '<text>', 'g'),
            '(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}[\\/]?', '<path>', 'g'),
            '\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b', '<id>', 'g'),
            '-?\b\d+(?:\.\d+)?\b', '<n>', 'g'), 200) AS template
    FROM (SELECT hash(said) AS text, any_value(said) AS said FROM failed GROUP BY text)
),
grouped AS (
    SELECT
        server, tool, template, verdict,
        avg(confidence) AS confidence,
        count(*) AS calls,
        count(DISTINCT hash(session)) AS sessions,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen,
        min(call_id) AS example_call
    FROM failed
    JOIN templates ON text = hash(said)
    GROUP BY server, tool, template, verdict
)
SELECT
    g.server, g.tool, g.template, g.verdict, f.reason, g.confidence, g.calls, g.sessions,
    first_seen, last_seen, left(f.said, 300) AS example, g.example_call
FROM grouped g
JOIN failed f ON f.call_id = g.example_call
ORDER BY calls DESC, g.server, g.tool, g.template, g.verdict
