-- Names of tools that calls use and that their server, which lists tools, never listed.
SELECT c.server, c.tool
FROM (
    SELECT any_value(server) AS server, any_value(tool) AS tool
    FROM usage
    GROUP BY hash(hash(server), hash(tool))
) c
ANTI JOIN tools t ON t.server IS NOT DISTINCT FROM c.server AND t.tool = c.tool
WHERE EXISTS (SELECT 1 FROM tools l WHERE l.server IS NOT DISTINCT FROM c.server)
