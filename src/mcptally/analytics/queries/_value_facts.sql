-- The tests that a value in the arguments of a call passes, as texts "argument test value"; others are null.
-- Value of: type, said, items, members, number
[
    'argument given yes',
    'argument empty ' || if(said = '' OR items = 0 OR members = 0, 'yes', NULL),
    'argument blank ' || if(trim(said) = '' AND said <> '', 'yes', NULL),
    'argument equals ' || if(
        length(said) BETWEEN 1 AND 60 AND NOT contains(said, '[redacted:'), said, NULL),
    -- The last part of a path, and a file's extension.
    'argument ends ' || if(
        length(said) <= 500 AND regexp_matches(said, '[/\\]') AND NOT contains(said, '[redacted:'),
        nullif(regexp_extract(said, '[^/\\]([/\\][^/\\\n]{1,60})$', 1), ''), NULL),
    'argument ends ' || if(length(said) <= 500 AND contains(said, '.'),
        nullif(regexp_extract(said, '^\S*[^/\\.\s](\.[A-Za-z][A-Za-z0-9]{0,7})$', 1), ''), NULL),
    'argument sign ' || CASE WHEN number < 0 THEN 'negative' WHEN number > 0 THEN 'positive' END,
    'argument sign ' || if(number <> floor(number), 'fraction', NULL),
    'argument at_least ' || if(abs(number) >= 1000, '1000', NULL),
    'argument at_least ' || if(abs(number) >= 1000000, '1000000', NULL),
    'argument items ' || if(items >= 2, '2', NULL),
    'argument items ' || if(items > 10, '11', NULL),
    'argument form ' || CASE
        WHEN type <> 'VARCHAR' OR said = '' THEN NULL
        WHEN regexp_full_match(left(said, 40), '[+-]?\d+(\.\d+)?') THEN 'number'
        WHEN regexp_matches(left(said, 20), '^[A-Za-z][A-Za-z0-9+.-]*://') THEN 'url'
        WHEN regexp_matches(left(said, 3), '^(/|~/|[A-Za-z]:[\\/])') THEN 'path'
        WHEN regexp_full_match(left(said, 40),
            '\d{4}-\d{2}-\d{2}([T ][0-9:.]+(Z|[+-]\d{2}:?\d{2})?)?') THEN 'date'
        WHEN regexp_full_match(left(said, 40),
            '[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}') THEN 'uuid'
        WHEN regexp_full_match(left(said, 200), '[^@\s]+@[^@\s]+\.[^@\s]+') THEN 'email'
    END,
    'argument form ' || if(regexp_matches(left(said, 2000), '[^\x00-\x7F]'), 'non_ascii', NULL),
    'argument form ' || if(contains(left(said, 2000), chr(10)), 'lines', NULL),
    'argument form ' || if(
        regexp_matches(left(said, 2000), '(^|[/\\])\.\.([/\\]|$)'), 'parent_path', NULL),
    'argument type ' || CASE type
        WHEN 'VARCHAR' THEN 'text' WHEN 'ARRAY' THEN 'list' WHEN 'OBJECT' THEN 'object'
        WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE 'number' END,
    'argument longer ' || if(length(said) > 100, '100', NULL),
    'argument longer ' || if(length(said) > 1000, '1000', NULL),
    'argument longer ' || if(length(said) > 10000, '10000', NULL)
]
