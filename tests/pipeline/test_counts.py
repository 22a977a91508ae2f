import pytest

from tests import corpus
from tests.second_opinion import differences


@pytest.mark.slow
@pytest.mark.parametrize("folder", corpus.FOLDERS, ids=lambda folder: folder.name)
def test_recordings_have_the_calls_replies_and_counts_of_the_reference(folder):
    files = [path for path in corpus.recordings() if path.parent == folder]
    assert differences(files[::3]) == []
