-- Which rules have findings, how many, and where is an example?
-- Shows: rule, severity, about, findings, servers, sessions, message, example
SELECT
    rule, severity, about,
    count(*) AS findings,
    count(DISTINCT server) AS servers,
    count(DISTINCT recording) AS recordings,
    count(DISTINCT session) AS sessions,
    count(DISTINCT tool) AS tools,
    count(DISTINCT call_id) AS calls,
    arg_min(message, (recording, seq, file, line)) AS message,
    -- An example: the call, or else the place in the archive.
    arg_min(coalesce(call_id, file || coalesce(':' || line, ''), tool),
        (recording, seq, file, line)) AS example
FROM findings
GROUP BY rule, severity, about
ORDER BY list_position(['error', 'warning', 'info'], severity), findings DESC, rule, about
