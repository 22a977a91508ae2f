-- Which failed calls would a dry run have refused, given only earlier recordings, and which successful calls would it have blocked?
-- Shows: server, tool, prevented, calls, failed, preventable, ok, blocked, example
-- None: No call could be predicted from earlier recordings.
-- Totals come from `usage`; single calls are read only if their outcome could be predicted.
WITH predictions AS MATERIALIZED (
    SELECT
        tool_hash, session_hash, worked, failed, refused, unforeseeable, validated_as,
        dry_run_phase,
        if(failed AND dry_run_phase IS NOT NULL, input_schema_path, NULL) AS path,
        if(failed AND dry_run_phase IS NOT NULL, input_schema_error, NULL) AS error,
        if(failed AND dry_run_phase IS NOT NULL, meaning, NULL) AS meaning
    FROM _prevalidated_calls
),
prediction_counts AS MATERIALIZED (
    SELECT
        tool_hash, session_hash,
        count(*) FILTER (failed AND refused) AS prevented,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'schema') AS by_schema,
        count(*) FILTER (failed AND refused AND dry_run_phase = 'semantic') AS by_meaning,
        count(*) FILTER (failed AND NOT coalesce(validated_as, true)) AS by_native_answer,
        count(*) FILTER (worked AND refused) AS blocked,
        count(*) FILTER (refused AND failed AND NOT unforeseeable) AS refused_failures
    FROM predictions
    GROUP BY tool_hash, session_hash
),
-- `usage` includes calls that ask for a validation; these are subtracted here.
validating AS (
    SELECT
        hash(hash(c.server), hash(c.tool)) AS tool_hash, hash(c.session) AS session_hash,
        any_value(c.server) AS server, any_value(c.tool) AS tool,
        -count(*) AS calls, -count(*) FILTER (outcome = 'ok') AS worked,
        -count(*) FILTER (_failed(outcome)) AS failed,
        -count(*) FILTER (_is_unforeseeable(verdict)) AS unforeseeable
    FROM calls c
    SEMI JOIN validations v USING (recording, call_id)
    WHERE dir = 'c2s' AND method = 'tools/call' AND c.tool IS NOT NULL
    GROUP BY tool_hash, session_hash
),
-- Sessions with several rows per tool, or with calls to subtract. Other rows need no sum.
long_sessions AS MATERIALIZED (
    SELECT hash(session) AS session_hash
    FROM usage
    GROUP BY session_hash
    HAVING min(hour) IS DISTINCT FROM max(hour) OR count(hour) NOT IN (0, count(*))
        OR min(hash(recording)) <> max(hash(recording))
    UNION
    SELECT session_hash FROM validating
),
usage_rows AS NOT MATERIALIZED (
    SELECT
        hash(hash(server), hash(tool)) AS tool_hash, hash(session) AS session_hash, server, tool,
        calls,
        ok AS worked,
        tool_errors + hidden_errors + protocol_errors + timeouts + no_responses AS failed,
        infrastructure + ambiguous AS unforeseeable
    FROM usage
    UNION ALL BY NAME
    FROM validating
),
session_counts AS (
    FROM usage_rows ANTI JOIN long_sessions USING (session_hash)
    UNION ALL BY NAME
    SELECT
        tool_hash, session_hash, any_value(server) AS server, any_value(tool) AS tool,
        sum(calls) AS calls, sum(worked) AS worked, sum(failed) AS failed, sum(unforeseeable) AS unforeseeable
    FROM usage_rows SEMI JOIN long_sessions USING (session_hash)
    GROUP BY tool_hash, session_hash
),
tool_counts AS (
    SELECT
        tool_hash, any_value(server) AS server, any_value(tool) AS tool,
        sum(calls)::BIGINT AS calls, sum(unforeseeable)::BIGINT AS unforeseeable,
        sum(failed)::BIGINT AS failed, sum(worked)::BIGINT AS worked,
        sum(prevented)::BIGINT AS prevented, sum(by_schema)::BIGINT AS by_schema,
        sum(by_meaning)::BIGINT AS by_meaning, sum(by_native_answer)::BIGINT AS by_native_answer,
        sum(blocked)::BIGINT AS blocked, sum(refused_failures)::BIGINT AS refused_failures,
        _interval(_moments(failed, prevented)) AS p,
        _interval(_moments(worked, blocked)) AS b,
        _interval(_moments(blocked + refused_failures, refused_failures)) AS d
    FROM (
        SELECT v.*, coalesce(COLUMNS(a.* EXCLUDE (tool_hash, session_hash)), 0)
        FROM session_counts v
        LEFT JOIN prediction_counts a USING (tool_hash, session_hash)
    )
    GROUP BY tool_hash
),
-- The most frequent reason given by a dry run. Only calls that it refuses are read.
reasons AS (
    SELECT tool_hash, first(reason ORDER BY n DESC, reason) AS example
    FROM (
        SELECT tool_hash, reason, sum(n) AS n
        FROM (
            SELECT tool_hash, count(*) AS n, CASE dry_run_phase
                WHEN 'schema' THEN concat_ws(': ', nullif(path, ''), error)
                WHEN 'semantic' THEN meaning
            END AS reason
            FROM predictions
            WHERE failed AND dry_run_phase IS NOT NULL
            GROUP BY tool_hash, dry_run_phase, path, error, meaning
        )
        GROUP BY tool_hash, reason
    )
    GROUP BY tool_hash
)
SELECT
    server, tool, calls, failed, prevented, by_schema, by_meaning, by_native_answer, unforeseeable,
    prevented / nullif(failed, 0) AS preventable,
    p.low AS preventable_low, p.high AS preventable_high,
    _insufficient_data(p) AS preventable_insufficient_data,
    worked AS ok, blocked, blocked / nullif(worked, 0) AS blocked_share,
    b.low AS blocked_share_low, b.high AS blocked_share_high,
    _insufficient_data(b) AS blocked_share_insufficient_data,
    refused_failures / nullif(blocked + refused_failures, 0) AS refusal_precision,
    d.low AS refusal_precision_low, d.high AS refusal_precision_high,
    _insufficient_data(d) AS refusal_precision_insufficient_data, example
FROM tool_counts
LEFT JOIN reasons USING (tool_hash)
WHERE failed > 0 OR blocked > 0
ORDER BY prevented DESC, failed DESC, server, tool
