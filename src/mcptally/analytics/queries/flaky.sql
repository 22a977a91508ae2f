-- Which calls both work and fail with the same arguments, and which always fail while other arguments work?
-- Shows: server, tool, repeatability, failed, calls, changes, sessions, since, arguments, call_id
-- None: No repeated arguments fail only sometimes, or always while others work.
-- `changes` counts how often the outcome changed from one of these calls to the next: 1 means a
-- lasting change (a repair, a regression, a file that now exists), more mean a flaky call. `since`
-- is the first failure. Tools that never worked have no row.
WITH same AS MATERIALIZED (
    SELECT
        same_hash, any_value(server) AS server, any_value(tool) AS tool, count(*) AS calls,
        count(*) FILTER (_failed(outcome)) AS failed
    FROM _comparable_calls
    GROUP BY same_hash
),
failing AS MATERIALIZED (
    SELECT s.*, t.calls - s.calls AS other_calls, t.worked - (s.calls - failed) AS other_worked
    FROM same s
    JOIN (
        SELECT server, tool, sum(calls) AS calls, sum(calls - failed) AS worked
        FROM same
        GROUP BY server, tool
    ) t ON t.server IS NOT DISTINCT FROM s.server AND t.tool = s.tool
    WHERE s.calls > 1 AND failed > 0 AND worked > 0
),
compared AS MATERIALIZED (
    SELECT
        same_hash, failed < calls AS sometimes, _failed(outcome) AS is_failed,
        hash(session) AS session_hash, requested_at, call_id
    FROM _comparable_calls
    JOIN (SELECT same_hash, calls, failed FROM failing) USING (same_hash)
),
changed AS (
    SELECT same_hash, count(*) FILTER (changed) AS changes
    FROM (
        SELECT
            same_hash, is_failed <> lag(is_failed) OVER (
                PARTITION BY same_hash ORDER BY requested_at, call_id
            ) AS changed
        FROM compared
        WHERE sometimes
    )
    GROUP BY same_hash
),
found AS (
    SELECT
        same_hash, count(DISTINCT session_hash) AS sessions,
        min(requested_at) FILTER (is_failed) AS since,
        max(requested_at) FILTER (is_failed) AS last_failure,
        arg_max(call_id, (requested_at, call_id)) FILTER (is_failed) AS call_id
    FROM compared
    GROUP BY same_hash
)
SELECT
    f.server, f.tool,
    CASE WHEN failed < calls THEN 'sometimes_fails' ELSE 'always_fails' END AS repeatability,
    failed, calls, coalesce(changes, 0) AS changes, sessions, since, last_failure,
    other_calls::BIGINT AS other_calls, other_worked::BIGINT AS other_worked,
    left(c.arguments, 200) AS arguments, call_id
FROM failing f
JOIN found USING (same_hash)
LEFT JOIN changed USING (same_hash)
JOIN (SELECT call_id, arguments FROM calls) c USING (call_id)
ORDER BY failed DESC, calls, server, tool, call_id
