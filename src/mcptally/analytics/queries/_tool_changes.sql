-- The last changes of tools, if for the worse: finding those of servers takes longer.
-- Of: used
SELECT series AS tool_hash, make_timestamp(moment::BIGINT) AT TIME ZONE 'UTC' AS changed_at
FROM _changes(['tool'], used)
WHERE difference > 0 AND next IS NULL
