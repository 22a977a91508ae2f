-- What a server's own validation adds up to per session: of real calls that it judged before.
SELECT
    server, session, count(*) AS calls,
    count(*) FILTER (failed AND unforeseeable) AS unforeseeable,
    count(*) FILTER (validated_as AND worked) AS valid_and_worked,
    count(*) FILTER (NOT validated_as AND worked) AS invalid_and_worked,
    count(*) FILTER (validated_as AND failed AND NOT unforeseeable) AS valid_and_failed,
    count(*) FILTER (NOT validated_as AND failed AND NOT unforeseeable) AS invalid_and_failed
FROM _foresight(true)
GROUP BY server, session
