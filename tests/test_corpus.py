"""Where tests look for the corpus, and what they say without it."""

from pathlib import Path

import pytest

from tests import corpus


def test_the_setting_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "traffic").mkdir()
    monkeypatch.setenv(corpus.SETTING, str(tmp_path))
    assert corpus.need("traffic") == tmp_path / "traffic"
    assert corpus.traffic() == []


def test_an_empty_setting_means_no_corpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(corpus.SETTING, "")
    assert corpus.folder() is None
    with pytest.raises(pytest.skip.Exception, match=r"needs cases/a\.jsonl.*MCPTALLY_CORPUS"):
        corpus.need("cases/a.jsonl")
    assert set(corpus.recordings()) == set(corpus.SAMPLES.glob("*.jsonl*"))


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(corpus.SETTING, str(tmp_path / "none"))
    with pytest.raises(pytest.UsageError, match=r"MCPTALLY_CORPUS=.*none: there is no such folder"):
        corpus.folder()
