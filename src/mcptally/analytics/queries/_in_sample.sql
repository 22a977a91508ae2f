-- Whether `contrasts` reads a session: all sessions or, of more than 250,000 calls, about 100,000 calls.
-- Value of: session
hash(session) <= 18446744073709551615 * CASE WHEN _number_of_calls() <= 250000 THEN 1.0 ELSE 100000 / _number_of_calls() END
