-- What do failing calls say, grouped by template, and whose failure is it?
-- Shows: server, tool, template, verdict, reason, confidence, calls, sessions, example_call
WITH failed AS (
    SELECT server, coalesce(tool, method) AS tool, session, call_id, verdict, reason, confidence,
        requested_at,
        coalesce(error_text, '(no text: ' || outcome || ')') AS said
    FROM calls
    WHERE outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
        AND dir = 'c2s'
),
-- Servers say the same again and again: what is said is masked once.
texts AS MATERIALIZED (
    SELECT
        server, tool, verdict, said,
        arg_min(reason, call_id) AS reason,
        sum(confidence) AS confidence, count(confidence) AS confidences,
        count(*) AS calls,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen,
        min(call_id) AS example_call
    FROM failed
    GROUP BY ALL
),
-- What differs from call to call: quoted text, URLs, paths, ids, numbers.
templates AS MATERIALIZED (
    SELECT
        said,
        left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            split_part(trim(said, E' \n\r\t'), E'\n', 1),
            '[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<url>', 'g'),
            '"[^"]*"|''[^'']*''|`[^`]*`', '<text>', 'g'),
            '(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}[\\/]?', '<path>', 'g'),
            '\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b', '<id>', 'g'),
            '-?\b\d+(?:\.\d+)?\b', '<n>', 'g'), 200) AS template
    FROM (SELECT DISTINCT said FROM texts)
),
heard AS (
    SELECT server, tool, template, verdict, count(DISTINCT session) AS sessions
    FROM failed
    JOIN templates USING (said)
    GROUP BY ALL
),
grouped AS (
    SELECT
        server, tool, template, verdict,
        arg_min(reason, example_call) AS reason,
        sum(confidence) / nullif(sum(confidences), 0) AS confidence,
        sum(calls)::BIGINT AS calls,
        min(first_seen) AS first_seen,
        max(last_seen) AS last_seen,
        left(arg_min(said, example_call), 300) AS example,
        min(example_call) AS example_call
    FROM texts
    JOIN templates USING (said)
    GROUP BY ALL
)
SELECT
    g.server, g.tool, g.template, g.verdict, reason, confidence, calls, sessions, first_seen,
    last_seen, example, example_call
FROM grouped g
JOIN heard h ON h.server IS NOT DISTINCT FROM g.server AND h.tool = g.tool
    AND h.template = g.template AND h.verdict IS NOT DISTINCT FROM g.verdict
ORDER BY calls DESC, g.server, g.tool, g.template, g.verdict
