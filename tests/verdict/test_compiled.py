"""The build writes the TOML files as JSON, and the program reads them from there."""

import shutil
from pathlib import Path

import msgspec
import pytest
from hatch_build import PACKAGE, write_compiled

import mcptally
from mcptally import toml_files
from mcptally.toml_files import CompiledFile, read_toml

SOURCE = Path(mcptally.__file__).parent
TOML = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.toml"))


def by_name(files: dict[str, CompiledFile]):
    """Return a replacement for `compiled_files` with these files, by path in the package."""
    return lambda folder: {
        Path(name).name: file for name, file in files.items() if Path(name).parent.name == folder
    }


@pytest.fixture
def compiled(tmp_path: Path) -> dict[str, CompiledFile]:
    for name in TOML:
        copy = tmp_path / PACKAGE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, copy)
    return {
        (written.parent / name).relative_to(tmp_path / PACKAGE).as_posix(): file
        for written in write_compiled(tmp_path)
        for name, file in msgspec.json.decode(
            written.read_bytes(), type=dict[str, CompiledFile]
        ).items()
    }


def test_the_json_of_the_build_equals_the_toml_files(monkeypatch: pytest.MonkeyPatch, compiled):
    assert sorted(compiled) == TOML
    monkeypatch.setattr(toml_files, "compiled_files", by_name({}))
    from_toml = {name: read_toml(name) for name in TOML}
    monkeypatch.setattr(toml_files, "compiled_files", by_name(compiled))
    assert {name: read_toml(name) for name in TOML} == from_toml


def test_a_toml_file_that_changed_since_the_build_is_read_itself(
    monkeypatch: pytest.MonkeyPatch, compiled
):
    old = CompiledFile(crc32=0, table=msgspec.Raw(b'{"rule": []}'))
    files = {**compiled, "rules/leaks.toml": old}
    monkeypatch.setattr(toml_files, "compiled_files", by_name(files))
    assert read_toml("rules/leaks.toml")["rule"]
