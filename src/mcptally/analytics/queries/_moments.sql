-- Sums over sessions for a rate: `n` calls per session, of which `y` are hits. Nulls are not allowed.
-- Value of: n, y
-- `mixed`: hits times misses, divided by calls; rounded, so the order of rows does not matter.
{
    n: sum(n), y: sum(y), yy: sum(y * y), yn: sum(y * n), nn: sum(n * n),
    mixed: sum(round(1e6 * y * (n - y) / greatest(n, 1))) / 1e6,
    sessions: sum(least(n, 1)), hit: sum(least(y, 1)), missed: sum(least(n - y, 1))
}
