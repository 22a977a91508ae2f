-- The address that an error text names: of a URL, of a connection pool, or a host with a port.
-- Value of: said
coalesce(
    nullif(regexp_extract(said, '://([^/\s"''<>)]+)', 1), ''),
    nullif(regexp_extract(said, 'host=\S+ port=\d+'), ''),
    nullif(regexp_extract(said, '\b([\w.-]+:\d{2,5})\b', 1), '')
)
