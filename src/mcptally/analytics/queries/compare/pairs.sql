-- Pairs of the same tool in `base` and `new`, and the tools that are new, vanished or renamed.
WITH definitions AS (
    SELECT side, server, tool,
        arg_max({definition: definition, title: title, description: description,
            input_schema: input_schema, output_schema: output_schema, annotations: annotations,
            tokens: tokens}, (last_seen, definition)) AS d
    FROM (
        SELECT 'base' AS side, * FROM base.tools
        UNION ALL BY NAME
        SELECT 'new' AS side, * FROM new.tools
    )
    GROUP BY ALL
),
-- Names that are not tools on the side where they occur are left out.
called AS (
    SELECT 'base' AS side, server, tool, count(*) AS calls, count(DISTINCT session) AS sessions
    FROM base._tool_calls c
    ANTI JOIN base._unlisted_names u ON u.server IS NOT DISTINCT FROM c.server AND u.tool = c.tool
    WHERE tool IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT 'new', server, tool, count(*), count(DISTINCT session)
    FROM new._tool_calls c
    ANTI JOIN new._unlisted_names u ON u.server IS NOT DISTINCT FROM c.server AND u.tool = c.tool
    WHERE tool IS NOT NULL
    GROUP BY ALL
),
known_tools AS (
    SELECT
        coalesce(c.side, d.side) AS side, coalesce(c.server, d.server) AS server,
        coalesce(c.tool, d.tool) AS tool, coalesce(calls, 0) AS calls,
        coalesce(sessions, 0) AS sessions, d.d
    FROM called c
    FULL JOIN definitions d
        ON d.side = c.side AND d.server IS NOT DISTINCT FROM c.server AND d.tool = c.tool
),
listed_servers AS (SELECT DISTINCT side, server FROM definitions),
before AS (SELECT * FROM known_tools WHERE side = 'base'),
after AS (SELECT * FROM known_tools WHERE side = 'new'),
-- A tool counts as vanished or new only if the other side listed its server's tools.
vanished_tools AS (
    SELECT b.* FROM before b
    ANTI JOIN after n ON n.server IS NOT DISTINCT FROM b.server AND n.tool = b.tool
    JOIN listed_servers l ON l.side = 'new' AND l.server IS NOT DISTINCT FROM b.server
    WHERE b.d IS NOT NULL
),
new_tools AS (
    SELECT n.* FROM after n
    ANTI JOIN before b ON n.server IS NOT DISTINCT FROM b.server AND n.tool = b.tool
    JOIN listed_servers l ON l.side = 'base' AND l.server IS NOT DISTINCT FROM n.server
    WHERE n.d IS NOT NULL
),
candidates AS (
    SELECT
        g.server, g.tool AS base_tool, f.tool AS new_tool,
        replace(coalesce(g.d.description, ''), g.tool, '') AS old_text,
        replace(coalesce(f.d.description, ''), f.tool, '') AS new_text,
        (g.d.input_schema = f.d.input_schema)::INTEGER
            + if(old_text = new_text, 1, jaro_winkler_similarity(old_text, new_text)) AS score
    FROM vanished_tools g
    JOIN new_tools f ON f.server IS NOT DISTINCT FROM g.server
    -- A renamed tool has the same arguments and nearly the same description.
    WHERE g.d.input_schema = f.d.input_schema AND length(old_text) > 0
        AND jaro_winkler_similarity(old_text, new_text) >= 0.9
),
renamed AS (
    SELECT server, base_tool, new_tool
    FROM candidates
    QUALIFY row_number() OVER (PARTITION BY server, base_tool ORDER BY score DESC, new_tool) = 1
        AND row_number() OVER (PARTITION BY server, new_tool ORDER BY score DESC, base_tool) = 1
)
SELECT
    coalesce(b.server, n.server) AS server, b.tool AS base_tool, n.tool AS new_tool,
    CASE
        WHEN r.base_tool IS NOT NULL THEN 'renamed'
        WHEN b.tool IS NOT NULL AND n.tool IS NOT NULL THEN 'both'
        WHEN b.tool IS NOT NULL AND g.tool IS NOT NULL THEN 'vanished'
        WHEN n.tool IS NOT NULL AND f.tool IS NOT NULL THEN 'new'
        WHEN b.tool IS NOT NULL THEN 'only_in_base'
        ELSE 'only_in_new'
    END AS presence,
    coalesce(b.calls, 0) AS base_calls, coalesce(n.calls, 0) AS new_calls,
    coalesce(b.sessions, 0) AS base_sessions, coalesce(n.sessions, 0) AS new_sessions,
    -- The fields of a definition, beginning with the one that affects agents most.
    CASE WHEN b.d IS NULL OR n.d IS NULL OR b.d.definition = n.d.definition THEN []
    ELSE list_filter([
        if(b.d.input_schema IS DISTINCT FROM n.d.input_schema, 'input_schema', NULL),
        if(b.d.output_schema IS DISTINCT FROM n.d.output_schema, 'output_schema', NULL),
        if(b.d.annotations IS DISTINCT FROM n.d.annotations, 'annotations', NULL),
        if(b.d.description IS DISTINCT FROM n.d.description, 'description', NULL),
        if(b.d.title IS DISTINCT FROM n.d.title, 'title', NULL)
    ], lambda field: field IS NOT NULL) END AS definition_changed,
    b.d.tokens AS base_definition_tokens, n.d.tokens AS new_definition_tokens
FROM before b
LEFT JOIN renamed r ON r.server IS NOT DISTINCT FROM b.server AND r.base_tool = b.tool
LEFT JOIN vanished_tools g ON g.server IS NOT DISTINCT FROM b.server AND g.tool = b.tool
FULL JOIN after n
    ON n.server IS NOT DISTINCT FROM b.server AND n.tool = coalesce(r.new_tool, b.tool)
LEFT JOIN new_tools f ON f.server IS NOT DISTINCT FROM n.server AND f.tool = n.tool
