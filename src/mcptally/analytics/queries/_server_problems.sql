-- Problems in the lifecycle of servers: facts for `priorities`, which adds the words.
-- `kind`: `not_started` (no start worked), `start` (some failed; one row per cause), `crash`
-- (between requests, or during a request of `method` that is not a call to a tool), `noise` (on
-- stdout), `not_connected` (over HTTP, no request got an answer, and no tool was called).
-- `affected` and `total` count starts; for noise, bad lines, and all messages and lines; for
-- `not_connected`, HTTP requests. `fault` is null if it depends on the cause.
-- `said`: the last words without numbers and paths. `probed`: failed starts after an
-- unanswered `server/discover`, which clients of newer revisions send first, if the server starts
-- in other cases.
WITH started AS (
    SELECT
        server, recording, start IN ('failed', 'unanswered') AS failed, start_failure, last_words,
        opened_at, ended_at, crash, crash_method, crash_call_id, probe_failed,
        start = 'ready' AS is_ready,
        count(*) OVER (PARTITION BY server) AS total,
        count(*) FILTER (start IN ('failed', 'unanswered')) OVER (PARTITION BY server) AS failures,
        regexp_replace(last_words, '/[^\s,;:)''"]+|\d+', '#', 'g') AS said,
        regexp_replace(said, '"[^"]*"|''[^'']*''', '#', 'g') AS form
    FROM recordings
    WHERE start <> 'unused'
)
SELECT
    CASE WHEN failures = total THEN 'not_started' ELSE 'start' END AS kind, server,
    count(*) AS affected, any_value(total) AS total,
    mode(start_failure ORDER BY start_failure) AS cause,
    arg_max(last_words, (start_failure = most, opened_at, recording)) AS message,
    arg_max(said, (start_failure = most, opened_at, recording)) AS said,
    min(opened_at) AS first_seen, max(ended_at) AS last_seen, NULL::VARCHAR AS method,
    NULL::VARCHAR AS call_id,
    CASE WHEN failures < total THEN count(*) FILTER (probe_failed) ELSE 0 END AS probed,
    NULL::VARCHAR AS fault
FROM (
    SELECT *, mode(start_failure ORDER BY start_failure) OVER (PARTITION BY server) AS most
    FROM started
    WHERE failed
)
GROUP BY server, failures, total, CASE WHEN failures < total THEN form END,
    CASE WHEN failures < total THEN start_failure END
UNION ALL
SELECT
    'crash', server, count(*), any_value(total), 'crashed', arg_max(last_words, opened_at), NULL,
    min(ended_at), max(ended_at), during, min(crash_call_id) FILTER (during IS NOT NULL), 0,
    NULL
FROM (
    SELECT *, CASE WHEN crash IS DISTINCT FROM 'idle' THEN crash_method END AS during
    FROM started
    WHERE crash = 'idle' OR (is_ready AND crash_method IS NOT NULL)
)
GROUP BY server, during
UNION ALL
SELECT
    'noise', server, sum(noise_lines), sum(noise_lines) + sum(messages), NULL, NULL, NULL,
    min(opened_at), max(ended_at), NULL, NULL, 0, NULL
FROM recordings
GROUP BY server
HAVING sum(noise_lines) > 0
UNION ALL
SELECT
    'not_connected', server, any_value(requests), any_value(requests), NULL,
    mode(error_text ORDER BY error_text), NULL, min(requested_at), max(requested_at), NULL,
    min(call_id), 0, mode(fault ORDER BY fault)
FROM calls
JOIN _unanswered_servers USING (server)
WHERE dir = 'c2s'
GROUP BY server
