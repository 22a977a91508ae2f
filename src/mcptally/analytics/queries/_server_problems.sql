-- Problems in the lifecycle of servers: facts for `priorities`, which adds the words.
-- `kind`: `not_started` (no start worked), `start` (some failed), `crash` (between calls), `noise`
-- (on stdout). `affected` and `total` count starts; for noise, bad lines, and all messages and
-- lines. `probed`: failed starts after an unanswered `server/discover`, which clients of newer
-- revisions send first, if the server starts in other cases.
SELECT
    CASE WHEN failed_starts = starts - unused_starts THEN 'not_started' ELSE 'start' END AS kind,
    server, failed_starts AS affected, starts - unused_starts AS total, start_failure AS cause,
    last_words AS message, first_seen, last_seen, recording,
    CASE WHEN failed_starts < starts - unused_starts THEN coalesce(probed, 0) ELSE 0 END AS probed
FROM servers
LEFT JOIN (
    SELECT r.server, count(DISTINCT recording) AS probed
    FROM recordings r
    JOIN calls c USING (recording)
    WHERE r.start IN ('failed', 'unanswered') AND c.method = 'server/discover'
        AND _failed(c.outcome)
    GROUP BY r.server
) USING (server)
WHERE failed_starts > 0
UNION ALL
SELECT
    'crash', server, crashes_when_idle, starts, 'crashed', last_words, first_seen, last_seen, recording, 0
FROM servers
WHERE crashes_when_idle > 0
UNION ALL
SELECT
    'noise', s.server, s.noise_lines, s.noise_lines + r.messages, NULL, NULL, s.first_seen,
    s.last_seen, s.recording, 0
FROM servers s
JOIN (SELECT server, sum(messages) AS messages FROM recordings GROUP BY server) r
    ON r.server IS NOT DISTINCT FROM s.server
WHERE s.noise_lines > 0
