-- Whether `contrasts` reads a session: all sessions, or a sample with about 250,000 calls.
-- Value of: session
hash(session) <= 18446744073709551615 * least(1.0, 250000 / _number_of_calls())
