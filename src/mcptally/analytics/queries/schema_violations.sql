-- Which arguments and results violate the tool's own schema, and were such calls accepted?
-- Shows: server, tool, side, state, path, error, calls, sessions, accepted, call_id
-- None: No arguments and no result violate a schema.
FROM _schema_violations(['input', 'output'])
ORDER BY calls DESC, server, tool, side, state, path, error
