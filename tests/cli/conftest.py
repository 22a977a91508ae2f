"""Fixture: a store of the sample traces."""

import pytest

import mcptally as mt
from tests import corpus


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> mt.Store:
    out = tmp_path_factory.mktemp("cli") / "store"
    mt.score(corpus.SAMPLES, out=out)
    return mt.open_store(out)
