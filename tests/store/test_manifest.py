"""`store.json` is written and read for archives with many files and without files."""

import json
from pathlib import Path

import pytest

from mcptally.store.manifest import MANIFEST, STORE_FORMAT, WORK, read_manifest, replace_manifest
from mcptally.store.source_files import SourceFile
from mcptally.tables.all_tables import TABLES


def store_with(folder: Path, sources: list[SourceFile]) -> Path:
    """Make a store with empty files, whose archive has these files."""
    parts = {f"{table.name}/000000-a.parquet": {"bytes": 0} for table in TABLES}
    for name in parts:
        (folder / name).parent.mkdir()
        (folder / name).touch()
    (folder / WORK).mkdir()
    replace_manifest(folder, {"format": STORE_FORMAT, "archive": sources, "parts": parts})
    return folder


SOURCES = [
    SourceFile('a "b" \N{SNOWMAN}.jsonl', 3, "0" * 64, (1, 2, 3)),
    SourceFile("c.jsonl", 0, "", None, whole=False),
]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_manifest_lists_the_files_of_the_archive(tmp_path: Path, number: int):
    store = store_with(tmp_path, SOURCES[:number])
    found = read_manifest(store)["archive"]
    assert found == SOURCES[:number]


def test_the_files_of_the_archive_are_left_out_on_request(tmp_path: Path):
    store = store_with(tmp_path, SOURCES)
    whole = json.loads((store / MANIFEST).read_text(encoding="utf-8"))
    assert whole.pop("archive")
    assert read_manifest(store, archive=False) == whole
