-- The kind of program that starts a server, from its recorded command.
-- Value of: command, transport
CASE
    WHEN command IS NULL OR command LIKE 'http%' OR transport IN ('streamable_http', 'http_sse')
        THEN 'remote'
    WHEN regexp_matches(command, '["/](?:npx|node|bun|bunx|pnpm|yarn|deno|tsx)(?:\.cmd|\.exe)?"')
        THEN 'node'
    WHEN regexp_matches(command, '["/](?:uvx?|pipx|python[\d.]*|poetry|fastmcp)(?:\.exe)?"')
        THEN 'python'
    WHEN regexp_matches(command, '["/](?:docker|podman)(?:\.exe)?"') THEN 'container'
    ELSE 'other program'
END
