"""Counts the tokens of texts: bytes over four, or with a model's tokenizer given by the user."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any, Final

import polars as pl

from mcptally.errors import UsageError, reason

BYTES_PER_TOKEN: Final = 4
"""UTF-8 bytes per token if no tokenizer is given."""

_PIECE: Final = 1 << 20
"""Maximum characters encoded at once: a token takes about 60 bytes of memory."""


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A tokenizer in Hugging Face format (`tokenizer.json`)."""

    name: str
    """Name of the file."""
    text: str = dataclasses.field(repr=False)
    """The file's content, since workers on other machines do not have the file."""

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Return the tokenizer in a file.

        Raises:
            UsageError: the package `tokenizers` is not installed, the file cannot be read, or it
                is not a tokenizer.
        """
        try:
            found = cls(path.name, path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path}: {reason(error)}; give the tokenizer.json of a model"
            ) from error
        _encoder(found.text, str(path))
        return found

    @property
    def digest(self) -> str:
        """Return 16 hex digits that change with the tokenizer and with the package that runs it."""
        version = importlib.metadata.version("tokenizers")
        return hashlib.sha256(f"{version}\n{self.text}".encode()).hexdigest()[:16]

    def count(self, text: str) -> int:
        """Return the number of tokens in a text, without special tokens at its ends."""
        encoder = _encoder(self.text, self.name)
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        return sum(
            len(encoder.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
            for piece in pieces
        )


def count_tokens(texts: pl.Series, tokenizer: Tokenizer | None) -> pl.Series:
    """Return the number of tokens in each text; null stays null."""
    if tokenizer is None:
        return texts.str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN
    distinct = texts.drop_nulls().unique()
    counts = [tokenizer.count(text) for text in distinct]
    return texts.replace_strict(
        distinct, pl.Series(counts, dtype=pl.Int64), default=None, return_dtype=pl.Int64
    )


@functools.lru_cache(maxsize=1)
def _encoder(text: str, name: str) -> Any:
    # Otherwise, the package starts one thread per core in each process of a run.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise UsageError(
            "--tokenizer needs the package tokenizers, which is not installed: "
            "pip install 'mcptally[tokens]'"
        ) from error
    try:
        encoder = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the package raises no narrower exception
        raise UsageError(
            f"{name}: is not a tokenizer ({error}); give the tokenizer.json of a model"
        ) from error
    encoder.no_truncation()
    encoder.no_padding()
    return encoder
