-- Which failed calls would a dry run have refused, knowing only what had been recorded before, and which successes would it have blocked?
-- Shows: server, tool, calls, failed, prevented, preventable, preventable_low, preventable_high, worked, blocked, example
WITH counted AS (
    SELECT
        server, tool, count(*) AS calls,
        count(*) FILTER (failed) AS failed,
        count(*) FILTER (failed AND refused) AS prevented,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'schema') AS by_schema,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'semantic') AS by_meaning,
        count(*) FILTER (failed AND NOT coalesce(validated_as, true)) AS by_native_answer,
        count(*) FILTER (failed AND warned AND NOT refused) AS warned_of,
        count(*) FILTER (failed AND unforeseeable) AS unforeseeable,
        count(*) FILTER (worked) AS worked,
        count(*) FILTER (worked AND refused) AS blocked,
        count(*) FILTER (worked AND warned AND NOT refused) AS warned_in_vain,
        mode(dry_run_error) FILTER (failed AND refused) AS example
    FROM _foresight GROUP BY server, tool
),
rates AS (
    SELECT
        server, tool,
        any_value(r) FILTER (metric = 'preventable') AS p,
        any_value(r) FILTER (metric = 'blocked') AS b,
        any_value(r) FILTER (metric = 'refusal_precision') AS d
    FROM (
        SELECT server, tool, metric, {mean: mean, low: low, high: high, n_eff: n_eff} AS r
        FROM _foresight_rates WHERE level = 'tool'
    )
    GROUP BY server, tool
)
SELECT
    c.server, c.tool, calls, failed, prevented, by_schema, by_meaning, by_native_answer, warned_of,
    unforeseeable, p.mean AS preventable, p.low AS preventable_low, p.high AS preventable_high,
    worked, blocked, warned_in_vain, b.mean AS blocked_share, b.low AS blocked_share_low,
    b.high AS blocked_share_high, d.mean AS refusal_precision, d.low AS refusal_precision_low,
    d.high AS refusal_precision_high,
    coalesce(p.n_eff < 10 OR p.high - p.low > 0.4, true) AS insufficient_data, example
FROM counted c
LEFT JOIN rates r ON r.server IS NOT DISTINCT FROM c.server AND r.tool = c.tool
WHERE failed > 0 OR blocked > 0
ORDER BY prevented DESC, failed DESC, c.server, c.tool
