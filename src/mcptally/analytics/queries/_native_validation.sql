-- Calls that the server's own validation judged beforehand, by session, answer and outcome.
SELECT
    server, session, count(*) AS calls,
    count(*) FILTER (failed AND unforeseeable) AS unforeseeable,
    count(*) FILTER (validated_as AND worked) AS valid_and_worked,
    count(*) FILTER (NOT validated_as AND worked) AS invalid_and_worked,
    count(*) FILTER (validated_as AND failed AND NOT unforeseeable) AS valid_and_failed,
    count(*) FILTER (NOT validated_as AND failed AND NOT unforeseeable) AS invalid_and_failed
FROM (
    SELECT
        server, session, validated_as, outcome = 'ok' AS worked,
        _failed(outcome)
            AS failed,
        coalesce(_is_unforeseeable(verdict), false) AS unforeseeable
    FROM _unvalidated_calls
    JOIN (SELECT call_id, validated_as FROM seed_scores WHERE validated_by IS NOT NULL)
        USING (call_id)
)
GROUP BY server, session
