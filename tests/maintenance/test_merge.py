"""Merged stores equal the store of a run over all of their archives."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import mcptally as mt
from mcptally.cli import cli
from mcptally.errors import StoreError, UsageError
from tests.kept_folder import KeptFolder
from tests.pipeline.golden import TRACES
from tests.pipeline.test_incremental import assert_as_full_run, recording
from tests.stored_tables import tables
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow

FILES = sorted(TRACES.rglob("*.jsonl*"))[::4]


def test_merged_stores_of_sample_traces_equal_one_run_over_all(tmp_path: Path):
    parts = [FILES[0::3], FILES[1::3], FILES[2::3]]
    for number, files in enumerate(parts):
        mt.score(files, out=tmp_path / str(number))
    done = mt.merge_stores([tmp_path / "0", tmp_path / "1", tmp_path / "2"], out=tmp_path / "all")
    assert (done.stores, done.files, done.twice, done.as_scored) == (3, len(FILES), 0, [])
    assert_as_full_run(tmp_path / "all", FILES, tmp_path)
    assert mt.score(FILES, out=tmp_path / "all").reused == len(FILES)


@settings(max_examples=max(2, settings.default.max_examples // 20))
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3)), min_size=2, max_size=6))
def test_merged_stores_of_random_archives_equal_one_run_over_all(tmp_path_factory, files):
    """Each file goes into the first store, the second or both."""
    folder = tmp_path_factory.mktemp("merged")
    paths = [
        write(folder / f"{number}.jsonl", recording(f"r{number}", seed))
        for number, (seed, _) in enumerate(files)
    ]
    stores = []
    for store in (1, 2):
        chosen = [path for path, (_, home) in zip(paths, files, strict=True) if home & store]
        if chosen:
            mt.score(chosen, out=folder / f"store{store}")
            stores.append(folder / f"store{store}")
    mt.merge_stores(stores, out=folder / "all")
    assert_as_full_run(folder / "all", paths, folder)


@pytest.fixture(scope="module")
def scored_once(tmp_path_factory: pytest.TempPathFactory) -> KeptFolder:
    return KeptFolder(tmp_path_factory.mktemp("two"), score_two)


def score_two(folder: Path) -> None:
    for number, name in enumerate("ab"):
        (folder / f"of-{name}").mkdir()
        talk = [c2s(1, call(1), name), s2c(2, text(1), name)]
        write(folder / f"of-{name}" / "own.jsonl", [opened(name, server=name), *talk])
        begin = opened("c", server="c", segment=number) | {"seq": 3 * number}
        rest = [c2s(3 * number + 1, call(1), "c"), s2c(3 * number + 2, text(1), "c")]
        write(folder / f"of-{name}" / "shared.jsonl", [begin, *rest])
        mt.score(folder / f"of-{name}", out=folder / name)


@pytest.fixture
def two(scored_once: KeptFolder) -> Path:
    """Two archives with stores `a` and `b`: each has one recording and a segment of a third."""
    return scored_once.restore()


def test_segments_of_a_recording_in_two_stores_are_put_together(two: Path):
    done = mt.merge_stores([two / "a", two / "b"], out=two / "all")
    assert (done.twice, done.as_scored) == (1, [])
    assert_as_full_run(two / "all", [two / "of-a", two / "of-b"], two)


def test_a_store_may_be_merged_into_itself(two: Path):
    mt.merge_stores([two / "a", two / "b"], out=two / "a")
    assert_as_full_run(two / "a", [two / "of-a", two / "of-b"], two)


def test_without_its_files_a_split_recording_stays_until_a_later_run_scores_it(two: Path):
    shutil.move(two / "of-b", two / "away")
    done = mt.merge_stores([two / "a", two / "b"], out=two / "all")
    assert done.as_scored == ["c"]
    assert done.rows["recordings"] == 3
    shutil.move(two / "away", two / "of-b")
    mt.score([two / "of-a", two / "of-b"], out=two / "all")
    assert_as_full_run(two / "all", [two / "of-a", two / "of-b"], two)
    assert json.loads((two / "all" / "store.json").read_text())["as_scored"] == []


def test_a_copy_under_another_name_counts_once(two: Path):
    shutil.copytree(two / "of-a", two / "copy")
    mt.score(two / "copy", out=two / "c")
    done = mt.merge_stores([two / "a", two / "c"], out=two / "all")
    assert done.twice == 2
    assert_as_full_run(two / "all", [two / "of-a"], two)


def test_without_any_transcript_rows_stay_as_they_were_scored(two: Path):
    before = {name: tables(two / name)["calls"] for name in "ab"}
    shutil.rmtree(two / "of-a")
    shutil.rmtree(two / "of-b")
    mt.merge_stores([two / "a", two / "b"], out=two / "all")
    calls = tables(two / "all")["calls"]
    assert set(calls["call_id"]) < set(before["a"]["call_id"]) | set(before["b"]["call_id"])
    assert sorted(calls["recording"]) == ["a", "b", "c"]


def test_stores_scored_with_other_options_are_refused(two: Path):
    mt.score(two / "of-b", out=two / "b", payloads=False)
    with pytest.raises(StoreError, match="cannot be merged: it was made without payloads"):
        mt.merge_stores([two / "a", two / "b"], out=two / "all")
    assert not (two / "all").exists()


def test_different_files_of_the_same_name_are_refused(two: Path, monkeypatch: pytest.MonkeyPatch):
    for name in "ab":
        monkeypatch.chdir(two / f"of-{name}")
        mt.score("own.jsonl", out=two / name)
    with pytest.raises(UsageError, match="different files"):
        mt.merge_stores([two / "a", two / "b"], out=two / "all")


def test_merging_into_a_url_is_refused(two: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(two)
    with pytest.raises(UsageError, match="s3://bucket/store: stores are merged into a folder"):
        mt.merge_stores([two / "a"], out="s3://bucket/store")
    assert not Path("s3:").exists()


def test_the_command_reports_reused_files_and_shared_recordings(two: Path):
    done = CliRunner().invoke(
        cli, ["merge", f"{two / 'a'}", f"{two / 'b'}", "-o", f"{two / 'all'}"]
    )
    assert done.exit_code == 0, done
    assert "2 stores, 4 files (2 reused as scored before)" in done.output
    assert "1 recording found in several stores" in done.output
