-- Which names do clients call that no listing of the server has, and what comes back?
-- Shows: server, name, calls, sessions, clients, outcome, verdict, example, similar_tool, call_id
-- None: No client called a name that the server does not list.
-- `_unlisted_names` determines these names.
WITH unlisted AS MATERIALIZED (SELECT * FROM _unlisted_names),
called AS MATERIALIZED (
    SELECT c.server, c.tool AS name, session, client, outcome, verdict, error_text, requested_at,
        call_id
    FROM calls c
    SEMI JOIN unlisted u ON u.server IS NOT DISTINCT FROM c.server AND u.tool = c.tool
    WHERE c.dir = 'c2s' AND c.method = 'tools/call'
),
closest AS (
    SELECT server, name, arg_max(tool, (similarity, tool)) AS similar_tool
    FROM (
        SELECT u.server, u.tool AS name, t.tool,
            jaro_winkler_similarity(lower(trim(u.tool)), lower(t.tool)) AS similarity
        FROM unlisted u
        JOIN (SELECT DISTINCT server, tool FROM _archive_tools) t
            ON t.server IS NOT DISTINCT FROM u.server
    )
    WHERE similarity >= 0.85
    GROUP BY server, name
)
SELECT
    c.server, c.name, count(*) AS calls, count(DISTINCT session) AS sessions,
    list_sort(list(DISTINCT client) FILTER (client IS NOT NULL)) AS clients,
    mode(outcome ORDER BY outcome) AS outcome, mode(verdict ORDER BY verdict) AS verdict,
    count(*) FILTER (_is_tool_failure(verdict)) AS tool_failures,
    count(*) FILTER (_is_infrastructure(verdict)) AS infrastructure,
    count(*) FILTER (_is_ambiguous(verdict)) AS ambiguous,
    count(*) FILTER (_is_business(verdict)) AS business,
    any_value(s.similar_tool) AS similar_tool,
    min(requested_at) AS first_seen, max(requested_at) AS last_seen,
    left(arg_min(error_text, call_id), 300) AS example, min(call_id) AS call_id
FROM called c
LEFT JOIN closest s ON s.server IS NOT DISTINCT FROM c.server AND s.name = c.name
GROUP BY c.server, c.name
ORDER BY calls DESC, c.server, c.name
