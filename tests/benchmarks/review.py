"""Measures what reviewed samples promise: coverage and width of their rates, and what largest first
corrects.

Simulated archives have verdicts that are wrong in large groups (hostile) or seldom (ordinary), with
a share of groups whose calls differ. Real archives are labelled recordings: a label stands for all
failed calls with the same server, tool and template, and calls that worked are taken as right.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

import mcptally as mt
from mcptally.evaluation import labels
from mcptally.statistics import reviewed
from mcptally.statistics.reviewed import Stratum
from tests import corpus

ANSWERS: Final = (20, 40, 80, 160)
ARCHIVES: Final = 1000
"""Simulated archives, and samples of each real one."""
VERDICT: Final = corpus.ROOT / "tests" / "verdict"


class Archive(NamedTuple):
    """Sizes of the groups of each stratum, and the share of their calls that the tool failed."""

    sizes: list[np.ndarray]
    truth: list[np.ndarray]

    @property
    def rate(self) -> float:
        """The true failure rate."""
        hits = sum(float(n @ p) for n, p in zip(self.sizes, self.truth, strict=True))
        return hits / sum(int(n.sum()) for n in self.sizes)


def simulated(rng: np.random.Generator, *, hostile: bool, mixed: float) -> Archive:
    calls = int(rng.integers(2000, 15000))
    if hostile:
        tail, shares = 0.7, (rng.uniform(0.05, 0.25), rng.uniform(0.1, 0.4))
        right = (rng.uniform(0.2, 0.7), rng.uniform(0.05, 0.4), rng.uniform(0, 0.05))
    else:
        tail, shares = 1.0, (rng.uniform(0.02, 0.06), rng.uniform(0.1, 0.25))
        right = (rng.uniform(0.7, 0.95), rng.uniform(0.01, 0.08), rng.uniform(0, 0.02))
    sizes, truth = [], []
    for share, p, most in zip(shares, right[:2], (60, 200), strict=True):
        weights = rng.pareto(tail, int(rng.integers(10, most))) + 1
        groups = np.maximum(1, weights / weights.sum() * calls * share).astype(np.int64)
        hits = (rng.random(len(groups)) < p).astype(float)
        differ = rng.random(len(groups)) < mixed
        hits[differ] = rng.random(int(differ.sum()))
        sizes.append(groups)
        truth.append(hits)
    ok = int(calls * (1 - sum(shares)))
    return Archive([*sizes, np.array([ok])], [*truth, np.array([right[2]])])


def sampled(archive: Archive, n: int, rng: np.random.Generator) -> reviewed.Interval:
    """The rate from a sample of `n` answers, drawn and computed as `mcptally review` does."""
    totals = [int(each.sum()) for each in archive.sizes]
    given = reviewed.allocate(totals, n)
    strata, asked = [], 0

    def answers(share: float, k: int) -> list[float]:
        return list((rng.random(k) < share).astype(float))

    for sizes, truth, k in zip(archive.sizes[:2], archive.truth[:2], given[:2], strict=True):
        drawn = reviewed.draw(sizes, k, rng)
        certain = [(float(sizes[g]), answers(truth[g], times)) for g, times in drawn.certain]
        rest = [answer for g, times in drawn.rest for answer in answers(truth[g], times)]
        asked += sum(times for _, times in (*drawn.certain, *drawn.rest))
        strata.append(Stratum(float(sizes.sum()), certain, rest))
    k = min(totals[2], max(given[2], n - asked))
    strata.append(Stratum(totals[2], (), answers(float(archive.truth[2][0]), k)))
    return reviewed.reviewed_rate([each for each in strata if each.calls])


def labels_only(archive: Archive, n: int, rng: np.random.Generator) -> reviewed.Interval:
    """Wilson's interval from `n` calls that are drawn without a look at the verdict."""
    hits = rng.binomial(n, archive.rate)
    return reviewed.reviewed_rate([Stratum(1.0, (), [1.0] * hits + [0.0] * (n - hits))])


def coverage(name: str, archives: Iterator[Archive]) -> None:
    found: dict[tuple[str, int], list[tuple[bool, float, float]]] = {}
    rng = np.random.default_rng(1)
    for archive in archives:
        rate = archive.rate
        for n in ANSWERS:
            for method in (sampled, labels_only):
                interval = method(archive, n, rng)
                inside = interval.low - 1e-9 <= rate <= interval.high + 1e-9
                row = (inside, interval.high - interval.low, interval.rate - rate)
                found.setdefault((method.__name__, n), []).append(row)
    for n in ANSWERS:
        covered, width, bias = np.nanmean(np.array(found["sampled", n], dtype=float), axis=0)
        plain, wide, _ = np.nanmean(np.array(found["labels_only", n], dtype=float), axis=0)
        print(
            f"{name:34} n {n:3}  covers {covered:.3f}  width {width:.3f}  bias {bias:+.4f}   "
            f"labels only {plain:.3f} {wide:.3f}  width ratio {width / wide:.2f}"
        )


def labelled_groups(recordings: list[Path], path: Path) -> pl.DataFrame:
    """Labelled groups of failed calls: `calls`, `truth` (label), `verdict`, `doubt`, `worked`."""
    with tempfile.TemporaryDirectory() as folder:
        mt.score(recordings, out=Path(folder, "store"))
        calls = (
            mt.open_store(Path(folder, "store"))
            .sql(
                "SELECT recording, request_id, method, server, tool, template, outcome, verdict, "
                "certainty FROM calls WHERE method = 'tools/call' AND dir = 'c2s'"
            )
            .pl()
        )
    read = (
        labels.read(path)
        .filter(pl.col("label").is_not_null())
        .select("recording", "request_id", "method", "label")
        .unique(["recording", "request_id", "method"], keep="none")
    )
    joined = calls.join(read, on=["recording", "request_id", "method"], how="left")
    # A template alone names the group where the call failed; calls that worked are one group.
    keys = ["server", "tool", "template", "verdict"]
    failed = joined.filter(pl.col("verdict").is_not_null())
    groups = failed.group_by(keys).agg(
        calls=pl.len(),
        truth=pl.col("label").drop_nulls().mode().sort().first(),
        differing=pl.col("label").drop_nulls().n_unique() > 1,
        doubt=(1 - pl.col("certainty").fill_null(50) / 100).sum(),
    )
    worked = joined.filter(pl.col("outcome") == "ok").height
    print(
        f"  {joined.height} calls; {failed.height} failed in {groups.height} groups, of which "
        f"{groups.filter(pl.col('truth').is_not_null()).height} are labelled "
        f"({groups.filter('differing').height} with different labels)"
    )
    return groups.filter(pl.col("truth").is_not_null()).with_columns(worked=pl.lit(worked))


def as_archive(groups: pl.DataFrame) -> Archive:
    is_failure = pl.col("verdict") == "tool_failure"
    strata = [groups.filter(is_failure), groups.filter(~is_failure)]
    sizes = [each.get_column("calls").cast(pl.Int64).to_numpy() for each in strata]
    hits = [(each.get_column("truth") == "tool_failure").cast(pl.Float64) for each in strata]
    worked = groups.get_column("worked")[0]
    return Archive(
        [*sizes, np.array([worked])], [*(each.to_numpy() for each in hits), np.array([0.0])]
    )


def largest_first(groups: pl.DataFrame) -> None:
    ordered = groups.sort("doubt", "calls", descending=True)
    right = (ordered.get_column("truth") == ordered.get_column("verdict")).fill_null(value=False)
    calls = ordered.get_column("calls").to_numpy()
    for n in (0, 10, 20, 40):
        known = right.to_numpy().copy()
        known[:n] = True
        share = calls @ known / calls.sum()
        print(f"  accuracy by calls after {n:2} answers of largest first: {share:.3f}")


def main() -> None:
    for mixed in (0.0, 0.05, 0.15):
        for hostile in (True, False):
            rng = np.random.default_rng(2)
            archives = (simulated(rng, hostile=hostile, mixed=mixed) for _ in range(ARCHIVES))
            kind = "hostile" if hostile else "ordinary"
            coverage(f"simulated, {kind}, {mixed:.0%} mixed", archives)
    real = {
        "natural": ([VERDICT / "natural_recordings"], VERDICT / "natural.jsonl"),
        "recorded": ([VERDICT / "recordings"], VERDICT / "recorded.jsonl"),
    }
    if folder := os.environ.get("MCPTALLY_CORPUS"):
        real["traffic"] = ([Path(folder, "traffic")], VERDICT / "labels" / "traffic.jsonl")
    for name, (recordings, path) in real.items():
        print(f"real: {name}")
        groups = labelled_groups(recordings, path)
        largest_first(groups)
        archive = as_archive(groups)
        print(f"  failure rate {archive.rate:.4f}")
        coverage(f"real, {name}", (archive for _ in range(ARCHIVES)))


if __name__ == "__main__":
    main()
