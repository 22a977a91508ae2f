-- What do tools ask users for, and how do users answer? Many cancellations within a second mean that a client shows no question.
-- Shows: server, tool, client, mode, shown, accepted, declined, cancelled, cancelled_at_once, unanswered, seconds_median
-- None: No tool asked a user for input.
SELECT
    server, tool, client, mode,
    count(*) AS shown,
    count(*) FILTER (action = 'accept') AS accepted,
    count(*) FILTER (action = 'decline') AS declined,
    count(*) FILTER (action = 'cancel') AS cancelled,
    count(*) FILTER (action = 'cancel' AND answered_at - asked_at < INTERVAL 1 SECOND)
        AS cancelled_at_once,
    count(*) FILTER (action IS NULL) AS unanswered,
    median(epoch(answered_at - asked_at)) FILTER (action IS NOT NULL) AS seconds_median,
    min(asked_at) AS first_asked, max(asked_at) AS last_asked,
    min(call_id) AS example
FROM input_requests
WHERE method = 'elicitation/create'
GROUP BY server, tool, client, mode
ORDER BY shown DESC, server, tool, client, mode
