-- What foresight adds up to per session, and tool or server; of all calls, or of those validated.
-- Of: per, validated
SELECT
    server, if(per = 'tool', f.tool, NULL) AS tool, session, count(*) AS calls,
    count(*) FILTER (worked) AS worked,
    count(*) FILTER (failed) AS failed,
    count(*) FILTER (failed AND unforeseeable) AS unforeseeable,
    count(*) FILTER (failed AND refused) AS prevented,
    count(*) FILTER (failed AND refused AND dry_run_phase = 'schema') AS by_schema,
    count(*) FILTER (failed AND refused AND dry_run_phase = 'semantic') AS by_meaning,
    count(*) FILTER (failed AND NOT coalesce(validated_as, true)) AS by_native_answer,
    count(*) FILTER (worked AND refused) AS blocked,
    count(*) FILTER (validated_as AND worked) AS valid_and_worked,
    count(*) FILTER (NOT validated_as AND worked) AS invalid_and_worked,
    count(*) FILTER (validated_as AND failed AND NOT unforeseeable) AS valid_and_failed,
    count(*) FILTER (NOT validated_as AND failed AND NOT unforeseeable) AS invalid_and_failed,
    count(*) FILTER (refused AND failed AND NOT unforeseeable) AS refused_and_failed
FROM _foresight(validated) f
GROUP BY server, if(per = 'tool', f.tool, NULL), session
