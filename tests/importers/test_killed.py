"""The files that an import leaves if it is killed while it writes."""

from pathlib import Path

import pytest

from mcptally.importers import import_logs

LOG = Path(__file__).parent / "samples" / "codex.jsonl.gz"


def test_an_import_that_ends_while_it_writes_its_report_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def end(path: Path, *_: object, **__: object) -> None:
        path.write_bytes(b"{")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", end)
    with pytest.raises(KeyboardInterrupt):
        import_logs(LOG, tmp_path)
    assert not list(tmp_path.glob("*.json"))
    monkeypatch.undo()
    assert import_logs(LOG, tmp_path).files[0].report in tmp_path.glob("*.json")
    assert not list(tmp_path.glob("*.part"))
