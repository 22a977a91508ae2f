"""The store of the tests of questions serves the tests of commands, too."""

from tests.analytics.conftest import rows, store

__all__ = ["rows", "store"]
