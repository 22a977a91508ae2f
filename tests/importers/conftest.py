"""Fixtures of the tests that add logs to a `LOGS` of their module."""

import pytest

from tests.importers.imported_logs import ImportedLog, all_records_accounted_for


@pytest.fixture(scope="module")
def logs(request, tmp_path_factory) -> list[ImportedLog]:
    """The module's `LOGS`, imported and scored."""
    return request.module.LOGS.import_and_score(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def imported(logs):
    """Return the tally and the calls of a log, which must have the format."""

    def tally_and_calls(number, expected):
        done = logs[number].done
        assert done.files[0].format == expected
        assert all_records_accounted_for(done)
        return done.files[0].tally, logs[number].calls.sort("requested_at", "answered_at")

    return tally_and_calls
