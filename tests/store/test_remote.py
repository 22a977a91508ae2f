"""Archives and stores behind URLs, on an S3 server of this machine and in memory."""

import datetime
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="needs mcptally[s3]")
pytest.importorskip("distributed", reason="needs mcptally[dask]")

import fsspec
from click.testing import CliRunner

import mcptally as mt
from mcptally.cli import cli
from mcptally.errors import McptallyError, StoreError, UnreadableError, UsageError
from mcptally.messages.decode import decode
from mcptally.store import remote_folder
from mcptally.store.remote_copy import local_copy
from mcptally.store.source_files import source_of
from mcptally.transcript import remote
from tests.pipeline.engines.clusters import QUIET, machines
from tests.pipeline.engines.test_dask import FILES, made_here
from tests.stored_tables import assert_same, tables

pytestmark = [*QUIET, pytest.mark.slow]


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """A store of the local files."""
    return made_here(tmp_path_factory, 3)


@pytest.fixture(scope="module")
def first_two(tmp_path_factory) -> Path:
    return made_here(tmp_path_factory, 2)


@pytest.fixture(scope="module")
def bucket():
    """An S3 server with the files in a bucket, and its address in the environment."""
    pytest.importorskip("s3fs", reason="needs mcptally[s3]")
    moto = pytest.importorskip("moto.server", reason="needs moto and flask, an S3 server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        remote._file_system.cache_clear()
        system = fsspec.filesystem("s3", skip_instance_cache=True)
        system.mkdir("bucket")
        for path in FILES:
            system.pipe_file(f"bucket/traces/{path.name}", path.read_bytes())
        yield system
        # Buckets and clients stay in the process, in which another server may be started: with
        # `--dist worksteal`, a worker may come back to this module.
        system.rm("bucket", recursive=True)
    remote._file_system.cache_clear()
    type(system).clear_instance_cache()
    server.stop()


@pytest.fixture
def memory():
    """fsspec's file system in memory, with the files in it."""
    system = fsspec.filesystem("memory")
    for path in FILES:
        system.pipe_file(f"/archive/traces/{path.name}", path.read_bytes())
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.mark.usefixtures("bucket")
def test_a_second_run_reads_only_what_changed(tmp_path: Path, bucket):
    out, here = tmp_path / "store", tmp_path / "here"
    here.mkdir()

    def bring(name: str, data: bytes) -> None:
        bucket.pipe_file(f"bucket/growing/{name}", data)
        (here / name).write_bytes(data)

    for path in FILES[:2]:
        bring(path.name, path.read_bytes())
    mt.score("s3://bucket/growing", out=out)
    assert mt.score("s3://bucket/growing", out=out).reused == 2
    bring(FILES[0].name, FILES[2].read_bytes())
    assert mt.score("s3://bucket/growing", out=out).reused < 2
    mt.score(here, out=tmp_path / "fresh")
    assert_same(out, tmp_path / "fresh", "file", "files")


def test_a_store_in_a_bucket_is_the_store_on_disk(
    tmp_path: Path, here: Path, first_two: Path, bucket
):
    summary = mt.score(FILES, out="s3://bucket/stores/one")
    assert summary.out == "s3://bucket/stores/one"
    bucket.invalidate_cache()
    bucket.get("bucket/stores/one", str(tmp_path / "store"), recursive=True)
    assert_same(tmp_path / "store", here)
    assert not bucket.exists("bucket/stores/one/.work")
    again = mt.score(FILES[:2], out="s3://bucket/stores/one")
    assert (again.files, again.reused > 0) == (2, True)
    bucket.invalidate_cache()
    bucket.get("bucket/stores/one", str(tmp_path / "less"), recursive=True)
    assert_same(tmp_path / "less", first_two)


def test_workers_read_from_a_bucket_and_write_to_it(tmp_path: Path, here: Path, bucket):
    with machines(tmp_path, workers=1) as found:  # they inherit the address of the S3 server
        mt.score(
            "s3://bucket/traces",
            out="s3://bucket/stores/two",
            engine="dask",
            scheduler=found.address,
            partition_bytes=1,
        )
        assert not list(found.folder.rglob("*.arrow"))
    bucket.invalidate_cache()
    bucket.get("bucket/stores/two", str(tmp_path / "store"), recursive=True)
    assert_same(tmp_path / "store", here, "file", "files")
    files = set(tables(tmp_path / "store")["calls"]["file"])
    assert files == {f"s3://bucket/traces/{path.name}" for path in FILES}
    assert not bucket.exists("bucket/stores/two/.work")


@pytest.mark.parametrize(
    "named",
    ["traces", "traces/", "traces/*.zst", "traces/git.jsonl.zst"],
)
@pytest.mark.usefixtures("memory")
def test_a_folder_a_pattern_and_a_file_are_found_in_memory(named: str):
    found = remote.discover(f"memory://archive/{named}")
    assert {Path(str(path)).name for path in found} <= {path.name for path in FILES}
    assert len(found) == (1 if "git" in named else len(FILES))


def test_the_digest_of_a_file_is_computed_while_it_is_read(memory):
    [path] = remote.discover("memory://archive/traces/git.jsonl.zst")
    assert remote.is_remote(path)
    with path.open() as file:
        head = file.read(4)
        file.seek(0)
        assert file.read().startswith(head)
    memory.rm("/archive/traces/git.jsonl.zst")
    assert source_of(FILES[0]).digest == path.digest()


def test_a_file_that_goes_away_or_got_shorter_ends_the_run(memory):
    [path] = remote.discover("memory://archive/traces/git.jsonl.zst")
    memory.pipe_file("/archive/traces/git.jsonl.zst", b"short")
    with pytest.raises(McptallyError, match="shorter than when it was listed"):
        decode([path])
    memory.rm("/archive/traces/git.jsonl.zst")
    with pytest.raises(McptallyError, match=r"memory:.*git\.jsonl\.zst: cannot be reached"):
        decode([path])


def test_a_url_with_other_files_is_refused_as_a_store(memory):
    memory.pipe_file("/archive/photos/cat.jpg", b"cat")
    with pytest.raises(StoreError, match=r"is not a store and has other files \(cat\.jpg\)"):
        mt.score(FILES, out="memory://archive/photos")
    assert memory.find("/archive/photos") == ["/archive/photos/cat.jpg"]


def test_a_path_made_from_a_url_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="memory://archive/store: a URL is given as text"):
        mt.score(FILES[:1], out=Path("memory://archive/store"))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def root(request) -> str:
    """A URL for stores, on S3 and on a file system without conditional PUT."""
    request.getfixturevalue("bucket" if request.param == "s3" else "memory")
    return {"s3": "s3://bucket/stores", "memory": "memory://archive"}[request.param]


def taken(url: str, folder: Path) -> Path:
    remote_folder.download(url, folder, remote_folder.list_names(url))
    return folder


@pytest.mark.parametrize(
    ("root", "first"),
    [("s3", False), ("memory", True)],
    ids=["a store that is there, on S3", "a first store, in memory"],
    indirect=["root"],
)
def test_of_two_runs_on_one_store_behind_a_url_the_second_to_publish_is_refused(
    tmp_path: Path, first_two: Path, root: str, first: bool
):
    url = f"{root}/contested-{first}"
    if not first:
        mt.score(FILES[:1], out=url)

    def overtaken() -> None:
        with local_copy(url) as folder:
            mt.score(FILES[1:2], out=folder)
            mt.score(FILES[:2], out=url)

    with pytest.raises(StoreError, match="another run has published there since this one began"):
        overtaken()
    assert_same(taken(url, tmp_path / "store"), first_two)
    listed = json.loads((tmp_path / "store" / "store.json").read_text())["parts"].keys()
    assert set(remote_folder.list_names(url)) == {"store.json", *listed}


@pytest.mark.parametrize("before", [None, '"0123456789abcdef0123456789abcdef"'])
def test_s3_itself_refuses_a_manifest_over_another_version(tmp_path: Path, bucket, before):
    bucket.pipe_file("bucket/stores/manifest", b"theirs")
    (tmp_path / "manifest").write_bytes(b"ours")
    put = remote_folder.upload_if_unchanged(
        tmp_path / "manifest", "s3://bucket/stores", "manifest", before=before
    )
    assert not put
    assert bucket.cat_file("bucket/stores/manifest") == b"theirs"
    there = remote_folder.version("s3://bucket/stores", "manifest")
    assert remote_folder.upload_if_unchanged(
        tmp_path / "manifest", "s3://bucket/stores", "manifest", before=there
    )
    assert bucket.cat_file("bucket/stores/manifest") == b"ours"


def test_a_store_at_a_file_url_is_the_store_on_disk(tmp_path: Path, here: Path):
    url = f"file://{tmp_path}/new/store"
    mt.score(FILES, out=url)
    assert_same(tmp_path / "new" / "store", here)
    with pytest.raises(StoreError, match=rf"{url}: .*queried; copy it to a folder$"):
        mt.open_store(url)


@pytest.mark.usefixtures("memory")
def test_score_does_not_advise_to_query_a_url():
    run = CliRunner().invoke(cli, ["score", str(FILES[0]), "-o", "memory://archive/store"])
    assert run.exit_code == 0
    assert "; next: copy it to a folder; then: mcptally query store tool_scores" in run.stderr


@pytest.fixture
def uploaded(memory, first_two: Path):
    """The store of two files in memory."""
    memory.put(str(first_two), "/archive/store", recursive=True)
    return memory


def test_files_of_a_run_that_did_not_end_are_removed_after_a_day_and_other_files_stay(uploaded):
    for name, days in (("old", 2), ("new", 0)):
        path = f"/archive/store/calls/{name}.parquet"
        uploaded.pipe_file(path, b"left by a run that was killed")
        uploaded.store[path].created -= datetime.timedelta(days=days)
    others = {"/archive/store/report.html": b"page", "/archive/store/notes/of.txt": b"ours"}
    for name, data in others.items():
        uploaded.pipe_file(name, data)
    assert mt.score(FILES[:1], out="memory://archive/store").reused
    assert not uploaded.exists("/archive/store/calls/old.parquet")
    assert uploaded.exists("/archive/store/calls/new.parquet")
    assert {name: uploaded.cat_file(name) for name in others} == others


def test_a_run_that_fails_leaves_the_store_behind_a_url_as_it_was(uploaded):
    before = {name: uploaded.cat_file(name) for name in uploaded.find("/archive/store")}
    uploaded.pipe_file("/archive/broken/noise.jsonl", b"{\n")
    with pytest.raises(UnreadableError):
        mt.score("memory://archive/broken", out="memory://archive/store")
    assert {name: uploaded.cat_file(name) for name in uploaded.find("/archive/store")} == before


def test_a_damaged_part_behind_a_url_is_made_and_uploaded_again(
    tmp_path: Path, uploaded, first_two: Path
):
    part = next(name for name in uploaded.find("/archive/store/calls") if "parquet" in name)
    uploaded.pipe_file(part, uploaded.cat_file(part)[:-9])
    assert mt.score(FILES[:2], out="memory://archive/store").reused == 0
    uploaded.get("/archive/store", str(tmp_path / "store"), recursive=True)
    assert_same(tmp_path / "store", first_two)


@pytest.mark.usefixtures("memory")
def test_an_empty_url_has_no_transcripts():
    with pytest.raises(UnreadableError, match=r"memory://nowhere: no transcripts found"):
        mt.score("memory://nowhere", out="memory://archive/store")


def test_a_web_server_that_is_down_is_not_an_empty_archive():
    pytest.importorskip("aiohttp", reason="needs mcptally[s3]")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(McptallyError, match="cannot be reached"):
        remote.discover(f"http://127.0.0.1:{port}/traces")


MISSING = {
    ("fsspec", "s3://bucket/traces"): "pip install 'mcptally[s3]'",
    ("s3fs", "s3://bucket/traces"): "pip install 'mcptally[s3]'",
    ("gcsfs", "gs://bucket/traces"): "gs:// cannot be read",
    ("nothing", "nosuch://bucket"): "nosuch:// cannot be read",
}
"""Package and URL → what the error says."""


def test_a_missing_package_for_a_url_is_named():
    code = (
        "import sys\n"
        "from mcptally.errors import UsageError\n"
        "from mcptally.transcript.remote import discover\n"
        f"for missing, url in {list(MISSING)!r}:\n"
        "    sys.modules[missing] = None\n"
        "    try: discover(url)\n"
        "    except UsageError as error: print(error)\n"
        "    del sys.modules[missing]\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert all(words in line for words, line in zip(MISSING.values(), lines, strict=True)), lines


def test_a_store_behind_a_url_says_how_to_read_it():
    with pytest.raises(StoreError, match="aws s3 sync s3://bucket/store store"):
        mt.open_store("s3://bucket/store")
