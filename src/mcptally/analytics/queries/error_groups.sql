-- Which error messages occur, grouped by template, who is at fault, since when, and do they go on?
-- Shows: server, tool, template, calls, verdict, reason, certainty, sessions, first_seen, last_seen, ongoing, call_id
-- None: No call failed.
WITH failed AS (
    SELECT
        server, coalesce(tool, method) AS tool, reason, certainty, requested_at, call_id,
        verdict, coalesce(template, '(no text: ' || outcome || ')') AS template,
        error_text, hash(session) AS session_hash,
        -- Grouping by a hash of names is cheaper than grouping by the names.
        hash(hash(server), hash(tool), CASE WHEN tool IS NULL THEN hash(method) ELSE 0 END)
            AS tool_hash,
        hash(
            hash(calls.template),
            CASE WHEN calls.template IS NULL THEN hash(outcome) ELSE 0 END,
            hash(verdict)
        ) AS group_hash
    FROM calls
    WHERE _failed(outcome)
        AND dir = 'c2s'
),
groups AS MATERIALIZED (
    SELECT
        tool_hash, group_hash,
        any_value(server) AS server, any_value(tool) AS tool, any_value(template) AS template,
        any_value(verdict) AS verdict, avg(certainty) AS certainty,
        count(*) AS calls, count(DISTINCT session_hash) AS sessions,
        min(requested_at) AS first_seen, max(requested_at) AS last_seen,
        arg_min({reason: reason, text: error_text}, call_id) AS example,
        min(call_id) AS call_id
    FROM failed
    GROUP BY tool_hash, group_hash
),
sliced AS (
    SELECT 1 + (max(epoch_us(last_seen)) - min(epoch_us(first_seen))) // 1024 AS size FROM groups
),
-- Calls to the tools that failed, except cancelled calls (their result is unknown). Time is divided
-- into 1024 slices, so that only the calls in some slices are sorted.
ended AS MATERIALIZED (
    SELECT tool_hash, requested_at, epoch_us(requested_at) // size AS slice
    FROM (
        SELECT
            hash(hash(server), hash(tool), CASE WHEN tool IS NULL THEN hash(method) ELSE 0 END)
                AS tool_hash,
            requested_at
        FROM calls
        WHERE outcome <> 'cancelled' AND dir = 'c2s' AND requested_at IS NOT NULL
    ),
    sliced
),
slices AS MATERIALIZED (
    SELECT tool_hash, slice, count(*) AS calls, sum(count(*)) OVER (
        PARTITION BY tool_hash ORDER BY slice
    ) AS calls_until
    FROM ended
    GROUP BY tool_hash, slice
),
edges AS (
    SELECT tool_hash, epoch_us(unnest([first_seen, last_seen])) // size AS slice
    FROM groups, sliced
),
-- Running totals of the calls to each tool over time, at the beginning and end of groups.
totals AS (
    SELECT t.tool_hash, requested_at, s.calls_until - s.calls + t.calls_until AS calls_until
    FROM (
        SELECT
            tool_hash, slice, requested_at, sum(count(*)) OVER (
                PARTITION BY tool_hash, slice ORDER BY requested_at
            ) AS calls_until
        FROM ended
        SEMI JOIN edges USING (tool_hash, slice)
        GROUP BY tool_hash, slice, requested_at
    ) t
    JOIN slices s USING (tool_hash, slice)
),
placed AS (
    SELECT
        g.*, t.calls - l.calls_until AS calls_since,
        -- Add one call to the divisor, so that a single failure is not a rate of 100 %.
        g.calls / (l.calls_until - f.calls_until + 2) AS share
    FROM groups g
    LEFT JOIN totals f ON f.tool_hash = g.tool_hash AND f.requested_at = first_seen
    LEFT JOIN totals l ON l.tool_hash = g.tool_hash AND l.requested_at = last_seen
    LEFT JOIN (SELECT tool_hash, sum(calls) AS calls FROM slices GROUP BY tool_hash) t
        ON t.tool_hash = g.tool_hash
)
SELECT
    server, tool, template, verdict, example.reason AS reason, certainty, calls, sessions,
    first_seen, last_seen, calls_since::BIGINT AS calls_since,
    -- Not ongoing if the probability of `calls_since` calls without this error is below 5 %.
    (1 - least(share, 1)) ** calls_since > 0.05 AS ongoing,
    left(example.text, 300) AS example, call_id
FROM placed
ORDER BY calls DESC, server, tool, template, verdict
