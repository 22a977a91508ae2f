-- What the error text of an outage reports, as a code; null if unknown.
-- Value of: said
CASE
    WHEN regexp_matches(said, '(?i)enotfound|eai_again|getaddrinfo|name ?resolution|to resolve|not known|no such host')
        THEN 'host_name'
    WHEN regexp_matches(said, '(?i)database (?:table )?is locked|sqlite_busy') THEN 'locked'
    WHEN regexp_matches(said, '(?i)refused|errno 111\b') THEN 'refused'
    WHEN regexp_matches(said, '(?i)\b(?:status(?: code)?|http(?: error)?|code|api error)\W{1,4}5\d\d\b'
            || '|\b5\d\d (?:server error|internal server|bad gateway|service unavailable|gateway)')
        THEN 'server_error'
    WHEN regexp_matches(said, '(?i)time[d ]?[ -]?out|etimedout|deadline exceeded') THEN 'timeout'
    WHEN regexp_matches(said, '(?i)econnreset|hang up|reset by peer|broken pipe|epipe'
            || '|connection (?:was )?(?:closed|lost|terminated|aborted|reset)')
        THEN 'lost'
    WHEN regexp_matches(said, '(?i)valid json|unexpected token|unterminated string|expecting value')
        THEN 'malformed'
    WHEN regexp_matches(said, '(?i)permission denied|eacces|eperm|operation not permitted'
            || '|not writ|read-?only|dubious ownership')
        THEN 'denied'
    WHEN regexp_matches(said, '(?i)fetch failed|connection attempts failed|connectionerror'
            || '|(?:unable|failed|cannot|could not) (?:to )?connect')
        THEN 'unreachable'
END
