-- Which servers were started, did they start, how did they end, and what did they say last?
-- Shows: server, starts, failed_starts, start_failure, ready_ms_median, crashes_in_calls, crashes_when_idle, noise_lines, calls, exit_code, signal, last_words
-- None: No server was recorded.
-- HTTP servers are not started by the recorder: their starts are null.
WITH lives AS (
    SELECT *, start IN ('failed', 'unanswered') AS start_failed,
        -- Among recordings with the same time, the one with the greater name counts as later.
        CASE WHEN opened_at IS NOT NULL THEN {moment: opened_at, name: recording} END AS opening,
        CASE WHEN ended_at IS NOT NULL THEN {moment: ended_at, name: recording} END AS ending
    FROM recordings
),
-- The most frequent last words of a server, with the last such line as an example.
failures AS (
    SELECT server, start_failure, count(*) AS n, arg_max(last_words, opening) AS last_words,
        arg_max(recording, opening) AS recording
    FROM lives
    WHERE start_failed
    GROUP BY server, start_failure
),
most AS (
    SELECT server, arg_max(
        {why: start_failure, words: last_words, recording: recording}, (n, start_failure)
    ) AS it
    FROM failures
    GROUP BY server
)
SELECT
    l.server,
    arg_max(coalesce(l.command, l.url), l.opening) AS command,
    list_sort(list(DISTINCT l.transport)) AS transports,
    nullif(count(*) FILTER (start IS NOT NULL), 0) AS starts,
    CASE WHEN starts IS NOT NULL THEN count(*) FILTER (start_failed) END AS failed_starts,
    count(*) FILTER (start = 'unused') AS unused_starts,
    any_value(m.it.why) AS start_failure,
    median(l.ready_ms) AS ready_ms_median,
    quantile_cont(l.ready_ms, 0.95) AS ready_ms_p95,
    count(*) FILTER (crash = 'start') AS crashes_at_start,
    count(*) FILTER (crash = 'call') AS crashes_in_calls,
    count(*) FILTER (crash = 'idle') AS crashes_when_idle,
    sum(l.noise_lines)::BIGINT AS noise_lines,
    sum(l.tool_calls)::BIGINT AS calls,
    count(*) FILTER (ended_by = 'client') AS ended_by_client,
    count(*) FILTER (ended_by = 'server') AS ended_by_server,
    arg_max(l.close_reason, l.ending) AS close_reason,
    arg_max_null(l.exit_code, l.ending) AS exit_code,
    arg_max_null(nullif(l.signal, 'null'), l.ending) AS signal,
    coalesce(any_value(m.it.words), arg_max(l.last_words, l.ending)) AS last_words,
    min(l.opened_at) AS first_seen,
    max(l.ended_at) AS last_seen,
    coalesce(
        any_value(m.it.recording), arg_max(l.recording, l.ending) FILTER (crash IS NOT NULL),
        arg_max(l.recording, l.ending)
    ) AS recording
FROM lives l
LEFT JOIN most m ON m.server IS NOT DISTINCT FROM l.server
GROUP BY l.server
ORDER BY
    coalesce(failed_starts / starts, 0) DESC, failed_starts DESC NULLS LAST,
    crashes_in_calls + crashes_when_idle DESC, noise_lines DESC, l.server
