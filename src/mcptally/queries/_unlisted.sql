-- Names that calls use and their server never listed, though it listed tools.
SELECT DISTINCT c.server, c.tool
FROM usage c
ANTI JOIN tools t ON t.server IS NOT DISTINCT FROM c.server AND t.tool = c.tool
WHERE EXISTS (SELECT 1 FROM tools l WHERE l.server IS NOT DISTINCT FROM c.server)
