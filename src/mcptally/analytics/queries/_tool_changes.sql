-- The last changes of tools, if for the worse: finding those of servers takes longer.
SELECT series AS tool_hash, make_timestamp(moment::BIGINT) AT TIME ZONE 'UTC' AS changed_at
FROM _changes(['tool'])
WHERE difference > 0 AND next IS NULL
