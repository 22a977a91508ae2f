-- The calls to tools that `contrasts` reads, regardless of filters.
-- Of: read
-- `read` is a table with the calls that filters select. Without filters, it is used itself.
SELECT call_id, server, tool, session, requested_at, latency_ms, outcome, verdict
FROM _archive_calls
WHERE method = 'tools/call' AND dir = 'c2s' AND _in_sample(session)
