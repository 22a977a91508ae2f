-- Which failed calls had failed before with the same arguments, and for how many successful calls would a warning have been wrong?
-- Shows: server, tool, warned_of, calls, failed, ok, warned_in_vain, example
-- None: No failed call had failed before with the same arguments.
-- A call gets a warning if the previous call to the tool with the same arguments, in any session,
-- was answered with an error. Calls whose arguments were not kept are left out.
-- Grouping by hashes of names and arguments is cheaper than grouping by the texts.
WITH kinds AS MATERIALIZED (
    SELECT
        same, any_value(tool_hash) AS tool_hash, any_value(server) AS server,
        any_value(tool) AS tool, any_value(arguments) AS arguments,
        count(*) AS calls,
        count(*) FILTER (_error(outcome)) AS errors,
        count(*) FILTER (_failed(outcome)) AS failed,
        count(*) FILTER (outcome = 'ok') AS worked
    FROM (
        SELECT *, hash(tool_hash, hash(arguments)) AS same FROM _unvalidated_calls
        WHERE arguments IS NOT NULL
    )
    GROUP BY same
),
-- The order of calls matters only if some failed and others did not.
mixed AS MATERIALIZED (
    SELECT same FROM kinds WHERE calls > 1 AND errors BETWEEN 1 AND calls - 1
),
ordered AS (
    SELECT
        same, outcome,
        lag(_error(outcome)) OVER (
            PARTITION BY same ORDER BY requested_at, recording, seq, "index"
        ) AS warned
    FROM (
        SELECT
            hash(tool_hash, hash(arguments)) AS same, outcome, requested_at, recording, seq, "index"
        FROM _unvalidated_calls
        WHERE arguments IS NOT NULL
    )
    SEMI JOIN mixed USING (same)
),
warnings AS (
    SELECT
        same,
        count(*) FILTER (_failed(outcome)) AS "right",
        count(*) FILTER (outcome = 'ok') AS vain
    FROM ordered
    WHERE warned
    GROUP BY same
)
SELECT
    any_value(server) AS server, any_value(tool) AS tool, sum(calls)::BIGINT AS calls,
    sum(failed)::BIGINT AS failed,
    sum(coalesce("right", CASE WHEN errors = calls THEN calls - 1 ELSE 0 END))::BIGINT AS warned_of,
    sum(worked)::BIGINT AS ok,
    sum(coalesce(vain, 0))::BIGINT AS warned_in_vain,
    -- The arguments that failed most often.
    left(arg_max(arguments, (errors, arguments)) FILTER (calls > 1), 200) AS example
FROM kinds
LEFT JOIN warnings USING (same)
GROUP BY tool_hash
HAVING warned_of > 0 OR warned_in_vain > 0
ORDER BY warned_of DESC, failed DESC, server, tool
