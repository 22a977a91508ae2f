-- Which failed calls would a dry run have refused, knowing only what had been recorded before, and which successes would it have blocked?
-- Shows: server, tool, calls, failed, prevented, preventable, preventable_low, preventable_high, worked, blocked, example
WITH counted AS (
    SELECT
        server, tool, sum(calls)::BIGINT AS calls, sum(failed)::BIGINT AS failed,
        sum(prevented)::BIGINT AS prevented, sum(by_schema)::BIGINT AS by_schema,
        sum(by_meaning)::BIGINT AS by_meaning, sum(by_native_answer)::BIGINT AS by_native_answer,
        sum(unforeseeable)::BIGINT AS unforeseeable, sum(worked)::BIGINT AS worked,
        sum(blocked)::BIGINT AS blocked
    FROM _foresight_sums('tool', false) GROUP BY server, tool
),
-- What a dry run says first; of calls that a dry run cannot refuse, nothing is read.
words AS (
    SELECT server, tool, mode(dry_run_error ORDER BY dry_run_error) AS example
    FROM _foresight(false) WHERE failed AND dry_run_phase IS NOT NULL GROUP BY server, tool
),
-- The same call as one that had failed before; calls that nobody repeats are left aside.
repeated AS (
    SELECT same FROM _foresight(false) WHERE same IS NOT NULL
    GROUP BY same HAVING count(*) > 1 AND bool_or(warns)
),
warned AS (
    SELECT
        server, tool,
        count(*) FILTER (failed AND NOT refused) AS warned_of,
        count(*) FILTER (worked AND NOT refused) AS warned_in_vain
    FROM (
        SELECT server, tool, failed, worked, refused,
            lag(warns) OVER (PARTITION BY same ORDER BY requested_at, call_id) AS before
        FROM _foresight(false) SEMI JOIN repeated USING (same)
    )
    WHERE before
    GROUP BY server, tool
),
rates AS (
    SELECT
        server, tool,
        any_value(r) FILTER (metric = 'preventable') AS p,
        any_value(r) FILTER (metric = 'blocked') AS b,
        any_value(r) FILTER (metric = 'refusal_precision') AS d
    FROM (
        SELECT server, tool, metric, {mean: mean, low: low, high: high, n_eff: n_eff} AS r
        FROM _foresight_rates('tool', false)
    )
    GROUP BY server, tool
)
SELECT
    c.server, c.tool, calls, failed, prevented, by_schema, by_meaning, by_native_answer,
    coalesce(warned_of, 0) AS warned_of,
    unforeseeable, p.mean AS preventable, p.low AS preventable_low, p.high AS preventable_high,
    worked, blocked, coalesce(warned_in_vain, 0) AS warned_in_vain, b.mean AS blocked_share, b.low AS blocked_share_low,
    b.high AS blocked_share_high, d.mean AS refusal_precision, d.low AS refusal_precision_low,
    d.high AS refusal_precision_high,
    coalesce(p.n_eff < 10 OR p.high - p.low > 0.4, true) AS insufficient_data, example
FROM counted c
LEFT JOIN words w ON w.server IS NOT DISTINCT FROM c.server AND w.tool = c.tool
LEFT JOIN warned a ON a.server IS NOT DISTINCT FROM c.server AND a.tool = c.tool
LEFT JOIN rates r ON r.server IS NOT DISTINCT FROM c.server AND r.tool = c.tool
WHERE failed > 0 OR blocked > 0
ORDER BY prevented DESC, failed DESC, c.server, c.tool
