-- Names in calls that are not tools: no listing contains them, and no call to them worked. Only
-- servers with a complete recorded listing are considered. The listings of all servers that report
-- the same name count, because another label or version may list the tool. Filters must not change
-- which names are tools, so the whole archive is read.
WITH called AS (
    SELECT any_value(server) AS server, any_value(tool) AS tool
    FROM _archive_usage
    GROUP BY hash(hash(server), hash(tool))
    HAVING sum(ok + input_required + tasks + unknown) = 0
),
server_names AS (
    SELECT DISTINCT server, server_name FROM _archive_recordings WHERE server_name IS NOT NULL
),
listed AS (
    SELECT server, tool FROM _archive_tools
    UNION
    SELECT n.server, t.tool FROM _archive_tools t JOIN server_names n USING (server_name)
),
complete AS (SELECT DISTINCT server FROM _archive_tools WHERE complete)
SELECT c.server, c.tool
FROM called c
SEMI JOIN complete w ON w.server IS NOT DISTINCT FROM c.server
ANTI JOIN listed t ON t.server IS NOT DISTINCT FROM c.server AND t.tool = c.tool
