-- In which formats does each server report errors, and how often in each?
-- Shows: server, error_shape, calls, share, tools
-- None: No server reported an error.
SELECT
    server, error_shape, count(*) AS calls,
    count(*) / sum(count(*)) OVER (PARTITION BY server) AS share,
    count(DISTINCT tool) AS tools, any_value(error_text) AS example
FROM calls
JOIN (SELECT call_id, error_shape FROM seed_scores WHERE error_shape IS NOT NULL) USING (call_id)
GROUP BY server, error_shape
ORDER BY server, calls DESC, error_shape
