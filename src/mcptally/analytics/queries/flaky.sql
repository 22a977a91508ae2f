-- Which calls both work and fail with the same arguments, and which always fail while other arguments work?
-- Shows: server, tool, repeatability, failed, calls, changes, sessions, since, arguments, call_id
-- None: No repeated arguments fail only sometimes, or always while others work.
-- `changes` counts how often the outcome changed from one of these calls to the next: 1 means a
-- lasting change (a repair, a regression, a file that now exists), more mean a flaky call. `since`
-- is the first failure. Tools that never worked have no row.
WITH ordered AS MATERIALIZED (
    SELECT
        *, _failed(outcome) AS is_failed,
        lag(_failed(outcome)) OVER (PARTITION BY same_hash ORDER BY requested_at, call_id)
            <> _failed(outcome) AS changed
    FROM repeatability
    WHERE repeatability IN ('always_fails', 'sometimes_fails')
),
tools AS (
    SELECT server, tool, count(*) AS calls, count(*) FILTER (outcome = 'ok') AS worked
    FROM repeatability
    GROUP BY server, tool
),
found AS (
    SELECT
        server, tool, repeatability, count(*) AS calls, count(*) FILTER (is_failed) AS failed,
        count(*) FILTER (changed) AS changes, count(DISTINCT session) AS sessions,
        min(requested_at) FILTER (is_failed) AS since,
        max(requested_at) FILTER (is_failed) AS last_failure,
        arg_max(call_id, (requested_at, call_id)) FILTER (is_failed) AS call_id
    FROM ordered
    GROUP BY server, tool, repeatability, same_hash
)
SELECT
    f.server, f.tool, f.repeatability, f.failed, f.calls, f.changes, f.sessions, f.since,
    f.last_failure, t.calls - f.calls AS other_calls,
    t.worked - (f.calls - f.failed) AS other_worked, left(c.arguments, 200) AS arguments, f.call_id
FROM found f
JOIN tools t ON t.server IS NOT DISTINCT FROM f.server AND t.tool = f.tool
JOIN calls c ON c.call_id = f.call_id
WHERE t.worked > 0
ORDER BY f.failed DESC, f.calls, f.server, f.tool, f.call_id
