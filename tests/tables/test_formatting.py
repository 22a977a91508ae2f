import polars as pl
import pytest

from mcptally.tables.formatting import counted, formatted

ROWS = pl.DataFrame({"text": ["a", None, "c{}"], "number": [1, 2, 3], "share": [0.5, 1.0, None]})


def in_chunks(column: pl.Series, *lengths: int) -> pl.Series:
    """Return the column in chunks of these lengths; a filter can leave empty chunks."""
    parts, kept, start = [], [], 0
    for length in lengths:
        parts.append(column.slice(start, length) if length else column.head(1))
        kept += [length > 0] * parts[-1].len()
        start += length
    made = pl.concat(parts, rechunk=False).filter(pl.Series(kept))
    assert made.chunk_lengths() == list(lengths)
    return made


def test_a_template_is_filled_row_by_row():
    texts = ROWS.select(made=formatted("{} of {}: {}!", "text", pl.col("number"), pl.lit("x")))
    assert texts["made"].to_list() == ["a of 1: x!", None, "c{} of 3: x!"]


def test_numbers_are_written_as_polars_writes_them():
    texts = ROWS.select(made=formatted("{}", pl.col("share")))
    assert texts["made"].to_list() == ["0.5", "1.0", None]


def test_a_count_of_one_has_its_noun_in_singular():
    counts = pl.DataFrame({"n": [0, 1, 2, None]})
    texts = counts.select(made=counted("n", "event is", "events are"))
    assert texts["made"].to_list() == ["0 events are", "1 event is", "2 events are", None]


@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (1, 0, 2), (0, 0, 3), (1, 2)])
@pytest.mark.parametrize("column", ["text", "number"])
def test_empty_chunks_change_nothing(lengths: tuple[int, ...], column: str):
    rows = ROWS.with_columns(in_chunks(ROWS[column], *lengths))
    made = formatted("{} of {}", "text", "number")
    assert rows.select(made).rows() == ROWS.select(made).rows()


def test_a_frame_without_rows_gives_none():
    assert ROWS.clear().with_columns(made=formatted("{} it", "text")).shape == (0, 4)


@pytest.mark.parametrize("values", [[], ["text", "number"]])
def test_each_place_takes_one_value(values: list[str]):
    with pytest.raises(ValueError, match="zip"):
        formatted("{} it", *values)
