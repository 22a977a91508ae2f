-- HTTP servers that answered none of their clients' calls, and how many requests they got.
SELECT server, sum(exchanges)::BIGINT AS requests
FROM recordings
GROUP BY server
HAVING sum(exchanges) > 0 AND sum(calls) > 0 AND sum(unanswered) = sum(calls)
    AND sum(tool_calls) = 0 AND bool_and(start IS NULL)
