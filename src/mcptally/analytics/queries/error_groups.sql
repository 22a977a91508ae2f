-- What do failing calls say, grouped by template, and whose failure is it?
-- Shows: server, tool, template, verdict, reason, confidence, calls, sessions, example_call
-- Servers say the same again and again: what is said is grouped by its hash, and masked once.
-- Calls are read once, for both sums of them.
WITH failed AS MATERIALIZED (
    SELECT
        server, tool, method, outcome, error_text, verdict, reason, confidence, requested_at, call_id,
        hash(session) AS visit,
        xor(hash(error_text), if(error_text IS NULL, hash(hash(outcome)), 0)) AS words,
        -- A hash of names is cheaper to group by than names.
        hash(hash(server), hash(tool), if(tool IS NULL, hash(method), 0), hash(verdict)) AS kind
    FROM calls
    WHERE outcome IN ('tool_error', 'protocol_error', 'hidden_error', 'timeout', 'no_response')
        AND dir = 'c2s'
),
said AS MATERIALIZED (
    SELECT
        kind, words, reason,
        any_value(server) AS server, coalesce(any_value(tool), any_value(method)) AS tool,
        any_value(verdict) AS verdict,
        coalesce(any_value(error_text), '(no text: ' || any_value(outcome) || ')') AS said,
        sum(confidence) AS confidence, count(confidence) AS judged,
        count(*) AS calls,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen,
        min(call_id) AS example_call
    FROM failed
    GROUP BY kind, words, reason
),
-- What differs from call to call: quoted text, URLs, paths, ids, numbers.
templates AS MATERIALIZED (
    SELECT
        words, said,
        left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            split_part(trim(said, E' \n\r\t'), E'\n', 1),
            '[a-z][a-z0-9+.-]*://[^\s"''<>]+', '<url>', 'g'),
            '"[^"]*"|''[^'']*''|`[^`]*`', '<text>', 'g'),
            '(?:[A-Za-z]:)?(?:[\\/][\w.@~+-]+){2,}[\\/]?', '<path>', 'g'),
            '\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]{12,}\b', '<id>', 'g'),
            '-?\b\d+(?:\.\d+)?\b', '<n>', 'g'), 200) AS template,
        hash(template) AS template_hash
    FROM (SELECT words, any_value(said) AS said FROM said GROUP BY words)
),
grouped AS (
    SELECT
        kind, template_hash,
        any_value(server) AS server, any_value(tool) AS tool, any_value(verdict) AS verdict,
        any_value(template) AS template,
        sum(confidence) / nullif(sum(judged), 0) AS confidence,
        sum(calls)::BIGINT AS calls,
        min(first_seen) AS first_seen, max(last_seen) AS last_seen,
        arg_min({reason: s.reason, said: s.said}, example_call) AS example,
        min(example_call) AS example_call
    FROM said s
    JOIN templates USING (words)
    GROUP BY kind, template_hash
),
visited AS (
    SELECT DISTINCT kind, words, visit FROM failed
),
visits AS (
    SELECT kind, template_hash, count(*) AS sessions
    FROM (
        SELECT DISTINCT kind, template_hash, visit
        FROM visited
        JOIN templates USING (words)
    )
    GROUP BY kind, template_hash
)
SELECT
    server, tool, template, verdict, example.reason AS reason, confidence, calls, sessions,
    first_seen, last_seen, left(example.said, 300) AS example, example_call
FROM grouped
JOIN visits USING (kind, template_hash)
ORDER BY calls DESC, server, tool, template, verdict
