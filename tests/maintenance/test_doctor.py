"""`doctor` finds problems and shows no secrets."""

import json
import os
import shutil
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.maintenance import doctor
from tests.commands import run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home folder, so that tests do not depend on this machine."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(small_store: mt.Store, tmp_path: Path) -> Path:
    return shutil.copytree(small_store.path, tmp_path / "store")


def found(name: str, **options) -> doctor.Check:
    [one] = [each for each in doctor.examine(configs=[], **options) if each.name == name]
    return one


def test_there_is_no_error_in_the_test_environment(store: Path):
    checks = doctor.examine(stores=[store], configs=[])
    assert [each for each in checks if each.state == "error"] == []
    names = {each.name for each in checks}
    assert {"python", "packages", "PATH", f"store {store}"} <= names


def test_variables_that_are_set_or_empty_are_named_and_their_values_stay_secret(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/s3cr3t/place")
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    checks = {each.name: each for each in doctor.examine(configs=[])}
    assert checks["SSL_CERT_FILE"].says.startswith("set; ")
    assert (checks["TMPDIR"].state, checks["TMPDIR"].says[:5]) == ("warning", "empty")
    assert "XDG_DATA_HOME" not in checks, "it is not needed"
    assert "s3cr3t" not in str(checks)


def test_client_configurations_are_checked_without_showing_secrets(tmp_path: Path):
    config = tmp_path / "mcp.json"
    behind = ["-m", "mcptally", "record", "--out=x", "--", "npx", "one"]
    servers = {
        "wrapped": {"command": "python", "args": behind},
        "plain": {"command": "npx", "args": ["two"], "env": {"TOKEN": "s3cr3t"}},
        "far": {"url": "https://example.org/mcp?key=s3cr3t"},
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    done = run("doctor", "--config", config)
    assert "1 of 3 servers behind the recorder, 1 remote" in done.stdout
    assert f"mcptally wrap {config}" in done.stdout
    assert "s3cr3t" not in done.stdout + done.stderr


def test_a_store_that_lost_rows_is_an_error(store: Path):
    assert found(f"store {store}", stores=[store]).state == "ok"
    first, *_ = sorted((store / "calls").rglob("*.parquet"))
    first.unlink()
    lost = found(f"store {store}", stores=[store])
    assert (lost.state, str(first) in lost.says) == ("error", True), lost


def test_a_store_whose_archive_changed_is_a_warning(small_store: mt.Store, tmp_path: Path):
    archive = shutil.copy(small_store.path.with_name("traces.jsonl"), tmp_path)
    store = mt.score([archive], out=tmp_path / "store").out
    with Path(archive).open("ab") as file:
        file.write(b"\n")
    assert found(f"store {store}: archive", stores=[store]).state == "warning"


def test_files_behind_urls_are_not_reported_as_changed(store: Path):
    manifest = json.loads((store / "store.json").read_text())
    manifest["archive"][0]["file"] = "s3://bucket/traces.jsonl"
    (store / "store.json").write_text(json.dumps(manifest))
    names = {each.name for each in doctor.examine(stores=[store], configs=[])}
    assert f"store {store}" in names
    assert f"store {store}: archive" not in names


@pytest.mark.parametrize("lacking", ["rows", "scored_at"])
def test_a_manifest_without_a_member_is_an_error(store: Path, lacking: str):
    manifest = json.loads((store / "store.json").read_text())
    del manifest[lacking]
    (store / "store.json").write_text(json.dumps(manifest))
    broken = found(f"store {store}", stores=[store])
    assert (broken.state, lacking in broken.says) == ("error", True)


def test_a_missing_home_is_an_error_and_other_checks_still_run(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(
        os, "getuid", lambda: 2**31 - 7
    )  # unknown to the system, as in some containers
    checks = {each.name: each for each in doctor.examine()}
    assert checks["write recordings"].state == "error"
    assert checks["PATH"].state == "ok"


def test_an_error_sets_the_exit_code_and_json_has_all_checks(tmp_path: Path):
    done = run("doctor", "--store", tmp_path / "none", "--format", "json")
    assert done.returncode == 1
    checks = json.loads(done.stdout)
    assert all(each.keys() == {"name", "state", "says", "do"} for each in checks)
    assert [each["name"] for each in checks if each["state"] == "error"] == [
        f"store {tmp_path / 'none'}"
    ]
