-- What calls with the same arguments have in common: whether they always, sometimes or never fail.
-- Value of: same_failed, same_calls
CASE
    WHEN same_calls = 1 THEN 'alone'
    WHEN same_failed = 0 THEN 'never_fails'
    WHEN same_failed = same_calls THEN 'always_fails'
    ELSE 'sometimes_fails'
END
