-- Which tools changed their definition, what changed, and how many calls failed before and after?
-- Shows: server, tool, drift, changed, first_seen, calls_before, tool_failures_before, calls, tool_failures
-- None: No tool changed its definition.
WITH used AS (
    SELECT
        server, tool, definition, count(*) AS calls,
        count(*) FILTER (_failed(outcome)) AS failed,
        count(*) FILTER (_is_tool_failure(verdict)) AS tool_failures
    FROM calls c
    SEMI JOIN (FROM tools WHERE previous IS NOT NULL) t
        ON t.server IS NOT DISTINCT FROM c.server AND t.tool = c.tool
    WHERE method = 'tools/call' AND dir = 'c2s'
    GROUP BY ALL
)
SELECT
    t.server, t.tool, t.drift, t.changed, t.first_seen, t.last_seen, t.sessions,
    coalesce(b.calls, 0) AS calls_before, coalesce(b.failed, 0) AS failed_before,
    coalesce(b.tool_failures, 0) AS tool_failures_before,
    coalesce(a.calls, 0) AS calls, coalesce(a.failed, 0) AS failed,
    coalesce(a.tool_failures, 0) AS tool_failures,
    t.previous, t.definition
FROM tools t
LEFT JOIN used b ON b.server IS NOT DISTINCT FROM t.server AND b.tool = t.tool
    AND b.definition = t.previous
LEFT JOIN used a ON a.server IS NOT DISTINCT FROM t.server AND a.tool = t.tool
    AND a.definition = t.definition
WHERE t.previous IS NOT NULL
ORDER BY
    list_position(['breaking', 'unclear', 'compatible', 'wording', 'hints'], t.drift),
    calls DESC, t.server, t.tool, t.first_seen
