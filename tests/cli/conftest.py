"""Fixture: a store of the sample traces."""

import pytest

import mcptally as mt


@pytest.fixture(scope="session")
def store(sample_store: mt.Store) -> mt.Store:
    return sample_store
