"""What property tests draw from: JSON values, and places at which data is cut."""

import itertools
from typing import Any

from hypothesis import strategies as st

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)

PLACES = st.lists(st.integers(0, 2000), max_size=12)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut data at these places, counted from its begin again where it is shorter."""
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]
