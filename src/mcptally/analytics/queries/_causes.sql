-- What is claimed of each cause of failed calls: kind, fault, certainty, number of calls.
-- Of: attributed
-- `attributed` is a table with the rows of `_failure_kinds`. The fault and the reason are those of
-- most calls; ties are broken by name, not by the order of rows.
WITH modes AS (
    SELECT
        cause, arg_min(value, (-calls, value)) FILTER (of = 'fault') AS fault,
        arg_min(value, (-calls, value)) FILTER (of = 'suspected') AS suspected,
        arg_max(value, (calls, value)) FILTER (of = 'reason') AS reason
    FROM (
        SELECT cause, of, value, sum(calls) AS calls
        FROM (
            SELECT
                cause, calls, unnest(['fault', 'suspected', 'reason']) AS of,
                unnest([fault, suspected, reason]) AS value
            FROM query_table(attributed)
        )
        GROUP BY cause, of, value
    )
    GROUP BY cause
)
SELECT
    cause, any_value(kind) AS kind, any_value(m.fault) AS fault,
    2 * sum(calls) FILTER (uncertain) > sum(calls) AS uncertain,
    any_value(m.suspected) AS suspected, any_value(m.reason) AS reason,
    coalesce(
        CASE WHEN 2 * sum(calls) FILTER (uncertain) > sum(calls)
            THEN sum(certainty * calls) FILTER (uncertain) / sum(calls) FILTER (uncertain) END,
        sum(certainty * calls) / sum(calls) FILTER (certainty IS NOT NULL)
    ) AS certainty,
    sum(hidden_certainty * calls) FILTER (hidden)
        / sum(calls) FILTER (hidden AND hidden_certainty IS NOT NULL) AS hidden_certainty,
    sum(calls)::BIGINT AS affected, coalesce(sum(calls) FILTER (hidden), 0)::BIGINT AS hidden,
    min(first_seen) AS first_seen, max(last_seen) AS last_seen
FROM query_table(attributed)
JOIN modes m USING (cause)
GROUP BY cause
