-- The changes of tools: finding those of servers takes longer.
FROM _changes(['tool'])
