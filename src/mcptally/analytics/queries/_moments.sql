-- Sums over sessions for a rate: `n` calls per session, of which `y` are hits. Nulls are not allowed.
-- Value of: n, y
{
    n: sum(n), y: sum(y), yy: sum(y * y), yn: sum(y * n), nn: sum(n * n),
    sessions: sum(least(n, 1)), hit: sum(least(y, 1)), missed: sum(least(n - y, 1))
}
