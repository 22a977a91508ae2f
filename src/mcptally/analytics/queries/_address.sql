-- The address that an error text names: a URL's, a connection pool's, or a host with a port.
-- Value of: said
coalesce(
    nullif(regexp_extract(said, '://([^/\s"''<>)]+)', 1), ''),
    nullif(regexp_extract(said, 'host=\S+ port=\d+'), ''),
    nullif(regexp_extract(said, '\b([\w.-]+:\d{2,5})\b', 1), '')
)
