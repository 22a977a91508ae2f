"""Makes the store of the question tests available to the tests of commands."""

from tests.analytics.conftest import rows, store

__all__ = ["rows", "store"]
