-- Which failed calls would a dry run have refused, knowing only what had been recorded before, and which successes would it have blocked?
-- Shows: server, tool, calls, failed, prevented, preventable, preventable_low, preventable_high, worked, blocked, example
-- What calls add up to is in `usage`; calls are looked at only where something could be foreseen.
WITH looked AS MATERIALIZED (
    SELECT
        kind, visit, worked, failed, refused, unforeseeable, validated_as, dry_run_phase,
        if(failed AND dry_run_phase IS NOT NULL, input_schema_path, NULL) AS path,
        if(failed AND dry_run_phase IS NOT NULL, input_schema_error, NULL) AS error,
        if(failed AND dry_run_phase IS NOT NULL, meaning, NULL) AS meaning
    FROM _foresight
),
apart AS MATERIALIZED (
    SELECT
        kind, visit,
        count(*) FILTER (failed AND refused) AS prevented,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'schema') AS by_schema,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'semantic') AS by_meaning,
        count(*) FILTER (failed AND NOT coalesce(validated_as, true)) AS by_native_answer,
        count(*) FILTER (worked AND refused) AS blocked,
        count(*) FILTER (refused AND failed AND NOT unforeseeable) AS rightly
    FROM looked
    GROUP BY kind, visit
),
-- Calls that ask for a validation are no calls to foresee, and `usage` counts them.
validating AS (
    SELECT
        hash(hash(c.server), hash(c.tool)) AS kind, hash(c.session) AS visit,
        any_value(c.server) AS server, any_value(c.tool) AS tool,
        -count(*) AS calls, -count(*) FILTER (outcome = 'ok') AS worked,
        -count(*) FILTER (outcome IN
            ('tool_error', 'hidden_error', 'protocol_error', 'timeout', 'no_response')) AS failed,
        -count(*) FILTER (verdict IN ('infrastructure', 'ambiguous')) AS unforeseeable
    FROM calls c
    SEMI JOIN validations v USING (recording, call_id)
    WHERE dir = 'c2s' AND method = 'tools/call' AND c.tool IS NOT NULL
    GROUP BY kind, visit
),
-- Where a session did all with a tool within one hour, its row is all there is.
several AS MATERIALIZED (
    SELECT hash(session) AS owner
    FROM usage
    GROUP BY owner
    HAVING min(hour) IS DISTINCT FROM max(hour) OR count(hour) NOT IN (0, count(*))
        OR min(hash(recording)) <> max(hash(recording))
    UNION
    SELECT visit FROM validating
),
hours AS NOT MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool)) AS kind, hash(session) AS visit, server, tool, calls,
        ok AS worked,
        tool_errors + hidden_errors + protocol_errors + timeouts + no_responses AS failed,
        infrastructure + ambiguous AS unforeseeable
    FROM usage
    UNION ALL BY NAME
    FROM validating
),
visits AS (
    FROM hours ANTI JOIN several ON visit = owner
    UNION ALL BY NAME
    SELECT
        kind, visit, any_value(server) AS server, any_value(tool) AS tool, sum(calls) AS calls,
        sum(worked) AS worked, sum(failed) AS failed, sum(unforeseeable) AS unforeseeable
    FROM hours SEMI JOIN several ON visit = owner
    GROUP BY kind, visit
),
sums AS (
    SELECT
        kind, any_value(server) AS server, any_value(tool) AS tool,
        sum(calls)::BIGINT AS calls, sum(unforeseeable)::BIGINT AS unforeseeable,
        sum(failed)::BIGINT AS failed, sum(worked)::BIGINT AS worked,
        sum(prevented)::BIGINT AS prevented, sum(by_schema)::BIGINT AS by_schema,
        sum(by_meaning)::BIGINT AS by_meaning, sum(by_native_answer)::BIGINT AS by_native_answer,
        sum(blocked)::BIGINT AS blocked, sum(rightly)::BIGINT AS rightly,
        _interval_of(_moments_of(failed, prevented)) AS p,
        _interval_of(_moments_of(worked, blocked)) AS b,
        _interval_of(_moments_of(blocked + rightly, rightly)) AS d
    FROM (
        SELECT v.*, coalesce(COLUMNS(a.* EXCLUDE (kind, visit)), 0)
        FROM visits v
        LEFT JOIN apart a USING (kind, visit)
    )
    GROUP BY kind
),
-- What a dry run says first; of calls that a dry run cannot refuse, nothing is read.
words AS (
    SELECT kind, first(said ORDER BY n DESC, said) AS example
    FROM (
        SELECT kind, said, sum(n) AS n
        FROM (
            SELECT kind, count(*) AS n, CASE dry_run_phase
                WHEN 'schema' THEN concat_ws(': ', nullif(path, ''), error)
                WHEN 'semantic' THEN meaning
            END AS said
            FROM looked
            WHERE failed AND dry_run_phase IS NOT NULL
            GROUP BY kind, dry_run_phase, path, error, meaning
        )
        GROUP BY kind, said
    )
    GROUP BY kind
)
SELECT
    server, tool, calls, failed, prevented, by_schema, by_meaning, by_native_answer, unforeseeable,
    prevented / nullif(failed, 0) AS preventable,
    p.low AS preventable_low, p.high AS preventable_high,
    worked, blocked, blocked / nullif(worked, 0) AS blocked_share,
    b.low AS blocked_share_low, b.high AS blocked_share_high,
    rightly / nullif(blocked + rightly, 0) AS refusal_precision,
    d.low AS refusal_precision_low, d.high AS refusal_precision_high,
    _too_little(p.n_eff, p.low, p.high) AS insufficient_data, example
FROM sums
LEFT JOIN words USING (kind)
WHERE failed > 0 OR blocked > 0
ORDER BY prevented DESC, failed DESC, server, tool
