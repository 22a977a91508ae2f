-- Smells in tool definitions (an argument, or the whole description), and how to fix them.
-- A test compares the rules with rules/definitions-smells.toml.
WITH advice(rule, advice) AS (
    VALUES
        ('definition.optional_required', 'make it required, or state when it is'),
        ('definition.required_in_prose', 'make it required in the schema'),
        ('definition.example_invalid', 'correct its example or default'),
        ('definition.enum_in_prose', 'list its values in `enum`'),
        ('definition.format_undocumented', 'state its format, with an example'),
        ('definition.limits_unstated', 'state its limits'),
        ('definition.default_unstated', 'state what happens without it'),
        ('definition.parameter_undescribed', 'describe it'),
        ('definition.parameter_repeats_name', 'describe more than its name'),
        ('definition.description_missing', 'describe the tool'),
        ('definition.description_repeats_name', 'describe more than the name of the tool'),
        ('definition.overlap', 'say when to call it rather than the other tool'),
        ('definition.description_long', 'shorten the description')
)
SELECT
    server, any_value(tool) AS tool, definition,
    -- Convert a JSON Pointer to an argument's name.
    replace(replace(nullif(regexp_extract(path, '^/inputSchema/properties/(.*)$', 1), ''),
        '~1', '/'), '~0', '~') AS argument,
    list_sort(list(DISTINCT rule)) AS rules,
    list(DISTINCT advice ORDER BY advice) AS advice
FROM _archive_findings
JOIN advice USING (rule)
GROUP BY server, definition, argument
