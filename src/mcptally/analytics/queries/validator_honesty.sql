-- How often is a server's own validation right: do calls that it accepts work, and do those that it refuses fail?
-- Shows: server, phase, validations, validated_calls, valid_worked, invalid_precision, invalid_recall
-- None: No server was asked to validate a call.
WITH asked AS (
    SELECT
        server, count(*) AS validations,
        count(*) FILTER (valid) AS said_valid,
        count(*) FILTER (NOT valid) AS said_invalid,
        count(*) FILTER (valid IS NULL) AS said_nothing,
        quantile_cont(latency_ms, 0.5) AS latency_p50_ms,
        max(latency_ms) AS latency_max_ms,
        CASE max(CASE phase WHEN 'schema' THEN 1 WHEN 'semantic' THEN 2 WHEN 'deep' THEN 3 END)
            WHEN 1 THEN 'schema' WHEN 2 THEN 'semantic' WHEN 3 THEN 'deep'
        END AS phase
    FROM validations GROUP BY server
),
sessions AS (
    SELECT
        *, valid_and_worked + valid_and_failed AS valid_n,
        invalid_and_worked + invalid_and_failed AS invalid_n,
        valid_and_failed + invalid_and_failed AS failed_n
    FROM _native_validation
),
real_calls AS (
    SELECT
        server, sum(calls)::BIGINT AS validated_calls,
        sum(valid_and_worked)::BIGINT AS valid_and_worked,
        sum(valid_and_failed)::BIGINT AS valid_and_failed,
        sum(invalid_and_failed)::BIGINT AS invalid_and_failed,
        sum(invalid_and_worked)::BIGINT AS invalid_and_worked,
        sum(unforeseeable)::BIGINT AS unforeseeable,
        sum(valid_and_worked) / nullif(sum(valid_n), 0) AS valid_worked,
        sum(invalid_and_failed) / nullif(sum(invalid_n), 0) AS invalid_precision,
        sum(invalid_and_failed) / nullif(sum(failed_n), 0) AS invalid_recall,
        _interval(_moments(valid_n, valid_and_worked)) AS yes,
        _interval(_moments(invalid_n, invalid_and_failed)) AS no,
        _interval(_moments(failed_n, invalid_and_failed)) AS found
    FROM sessions
    GROUP BY server
),
servers AS (SELECT DISTINCT server FROM calls)
SELECT
    s.server, if(a.server IS NULL, 'none', a.phase) AS phase,
    coalesce(validations, 0) AS validations,
    coalesce(said_valid, 0) AS said_valid, coalesce(said_invalid, 0) AS said_invalid,
    coalesce(said_nothing, 0) AS said_nothing, latency_p50_ms, latency_max_ms,
    coalesce(validated_calls, 0) AS validated_calls, valid_and_worked, valid_and_failed,
    invalid_and_failed, invalid_and_worked, unforeseeable,
    valid_worked, yes.low AS valid_worked_low, yes.high AS valid_worked_high,
    if(a.server IS NULL, NULL, _insufficient_data(yes)) AS valid_worked_insufficient_data,
    invalid_precision, no.low AS invalid_precision_low,
    no.high AS invalid_precision_high,
    if(a.server IS NULL, NULL, _insufficient_data(no)) AS invalid_precision_insufficient_data,
    invalid_recall, found.low AS invalid_recall_low,
    found.high AS invalid_recall_high,
    if(a.server IS NULL, NULL, _insufficient_data(found)) AS invalid_recall_insufficient_data
FROM servers s
LEFT JOIN asked a ON a.server IS NOT DISTINCT FROM s.server
LEFT JOIN real_calls c ON c.server IS NOT DISTINCT FROM s.server
ORDER BY validations DESC, s.server
