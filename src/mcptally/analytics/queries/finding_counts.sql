-- Which rules have findings, how many, and where is an example?
-- Shows: rule, findings, severity, about, servers, sessions, message, call_id, place
-- None: No rule has a finding.
SELECT
    rule, severity, about,
    count(*) AS findings,
    count(DISTINCT server) AS servers,
    count(DISTINCT recording) AS recordings,
    count(DISTINCT session) AS sessions,
    count(DISTINCT tool) AS tools,
    count(DISTINCT call_id) AS calls,
    arg_min(message, (recording, seq, file, line)) AS message,
    -- An example: the call (if the finding is about a call), and the place in the archive.
    arg_min({call_id: call_id}, (recording, seq, file, line)).call_id AS call_id,
    arg_min(coalesce(file || coalesce(':' || line, ''), tool), (recording, seq, file, line))
        AS place
FROM findings
GROUP BY rule, severity, about
ORDER BY list_position(['error', 'warning', 'info'], severity), findings DESC, rule, about
