"""Decides what an error text is about: the caller's program, the tool's schema, or other data.

`NameError: 'total'` is an error in the caller's program if the arguments contain a program that
uses the name. `php: not found` is not the caller's mistake if the tool's schema offers `php`. A
validator that rejects a field that is in neither the arguments nor the schema checked other data.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.tables.arrow import captured
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import row_mask
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Judged
from mcptally.verdict import named_object

_PROGRAM: Final = (
    r"(?i)(?:^|[\s(:])[/\w]*sh: (?:line )?(?:\d+: )?(?-i:[\w.+-]*/)*((?-i:[\w.+-])+): "
    r"(?:command )?not found"
    r"|\bspawn(?:Sync)? (?:\S*/)?(\S+) E(?:NOENT|ACCES)\b"
    r"|exec: \"(?:[^\"]*/)?([\w.+-]+)\": executable file not found"
    r"|no such file or directory: ['\"]([\w.+-]+)['\"]"
    r"|(?:^|[\n:] ?)((?-i:[\w.+-])+): command not found"
    r"|['\"]?((?-i:[\w.+-])+)['\"]? is not recognized as"
    r"|no module named ['\"]?((?-i:\w)+)"
    r"|\benv: \W?([\w.+-]+)\W?: no such file"
    r"|['\"`]?((?-i:[\w.+-])+)['\"`]? (?:is |was )?(?:not|n't) "
    r"(?:installed|found (?:in|on) (?:the )?(?:system )?\$?path)\b"
)
"""Matches the name of a program, interpreter or library that is reported as missing."""
_IDENTIFIER: Final = (
    r"(?i)\bname ['\"](\w+)['\"] is not defined|nameerror: ['\"]?(\w+)['\"]?(?:$|\n)"
    r"|no module named ['\"]?(\w+)|cannot import name ['\"](\w+)"
    r"|cannot find (?:module|package|name) ['\"]([^'\"]+)['\"]"
    r"|(?:^|[\s:])([\w$]+) is not defined(?:$|[\s.])"
    r"|(?:unknown|undefined|unresolved|undeclared|unbound) "
    r"(?:identifier|variable|name|symbol|function)[: ]+['\"`]?([\w$.]+)"
    r"|\bundefined: (\w+)"
)
"""Matches a name that is reported as undefined in a program."""
_CODE_VALUE: Final = (
    r'"(?:[\w$]+|(?:[^"\\]|\\.)*(?:[=(){};]|\\n|\bimport |\bfrom |\bdef )(?:[^"\\]|\\.)*)"\s*[,\]}]'
)
"""Matches a string value in JSON that is one word or looks like a program."""
_FIELD: Final = (
    r"(?i)validation errors? for \S+\s*\n\s*((?-i:[A-Za-z_][\w.\[\]-]*))(?:\s*\n|\s+(?-i:[A-Z]))"
    r'|"path"\s*:\s*\[\s*([^\]]*"[^\]]*)\]'
)
"""Matches the path of the first field about which a validator complains."""
_INPUT: Final = r"input_value=\{['\"]?([^'\":}]*)"
"""Matches the first key of the object that pydantic rejects; empty if the object is empty."""
_ASKED: Final = (
    r"(?i)\b((?-i:[A-Za-z])[\w-]+)['\"`]?(?: (?:parameter|argument|field))?"
    r"(?:(?:,| and|, and) ['\"`]?[\w-]+['\"`]?)* "
    r"(?:(?:is|are|was|were) )?(?:required|missing|needed|not (?:provided|given|specified"
    r"|supplied))\b"
    r"|\b(?:no|missing)(?: (?:an?|the|valid|required|parameter|argument|field))*:? "
    r"['\"`]?((?-i:[A-Za-z])[\w-]+(?: (?:id|name|url|path|key))?)\b"
)
"""Matches the name of an argument that the text asks for."""
_CHECKED: Final = r"(?i)\b((?-i:[A-Za-z])\w+)['\"`]? (?:must|should|has to) be "
"""Matches the name of an argument whose value the text rejects."""
_NOTHING: Final = r'"[^"\\]+"\s*:\s*(?:null|0|"\s*")\s*[,}]'
"""Matches an argument with a value that counts as missing."""
_NAME: Final = r"[A-Za-z_]\w*"
_ENVELOPE: Final = frozenset(
    (
        *("params", "arguments", "method", "jsonrpc", "name"),
        *("body", "query", "input", "request", "headers"),
    )
)
"""Names of fields that contain the arguments as a whole."""
_CHOICE: Final = (
    r'"\w*(?:lang|interpreter|runtime|engine|kernel|compiler|executor|backend|converter|renderer'
    r'|formatter|linter|package_?manager|toolchain|driver)\w*"\s*:\s*"([^"\\]{1,40})"'
)
"""Matches the value of an argument with which the caller selects a program."""
_SHELLS: Final = frozenset(
    (
        *("sh", "bash", "zsh", "fish", "shell", "shellscript"),
        *("powershell", "pwsh", "cmd", "bat", "batch"),
    )
)
_MAX_OFFER: Final = 80
"""Maximum length in characters of a value that a schema offers; longer values are ignored."""
_OFFERING: Final = ("enum", "const", "default", "examples")
"""JSON Schema keywords whose values the schema offers to callers."""


class _Quoting(StageTable):
    """One row per call whose text names something that a pattern extracts."""

    row = Column(pl.UInt32, "Number of the call.")
    text = Column(pl.UInt32, "Number of its text.")
    word = Column(pl.String, "What the text quotes, in lower case.")
    values = Column(pl.String, "The values of the arguments that may be a program.")
    offers = Column(pl.List(pl.String), "The values that the schema offers, in lower case.")
    choice = Column(pl.String, "The value of the argument that chooses a program.")
    property = Column(pl.String, "Name of an argument that the schema has.")


def offered(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return a mask of calls that failed because a program is missing that the schema offers.

    Such a call meets one of two conditions: the tool's schema names the missing program, or the
    caller chose an interpreter that the schema offers and passed code that does not call the
    missing program itself.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` (JSON) and `input_schema` (JSON).
    """
    quoting = _quoting(texts, calls, _PROGRAM, Definitions.input_schema)
    schema = Definitions.input_schema.name
    schemas = quoting.get_column(schema).unique()
    offers = pl.DataFrame(
        {schema: schemas, _Quoting.offers.name: [sorted(set(_offers(each))) for each in schemas]},
        schema_overrides={_Quoting.offers.name: _Quoting.offers.dtype},
    )
    word, values = _Quoting.word.col, _Quoting.offers.col
    # `python3` and `python3.11` count as the interpreter `python`.
    bare = word.str.replace(r"(?:[-.]?\d[\d.]*)?(?:\.exe)?$", "")
    choice = Judged.arguments.col.str.extract(f"(?i){_CHOICE}", 1).str.to_lowercase()
    is_chosen = values.list.contains(_Quoting.choice.col) & ~_Quoting.choice.col.is_in(_SHELLS)
    is_callers = _code(Judged.arguments.col).str.contains(named_object.as_words(word), literal=True)
    found = (
        quoting.lazy()
        .join(offers.lazy(), on=schema)
        .with_columns(choice=choice)
        .filter(
            values.list.contains(word)
            | values.list.contains(bare)
            | (is_chosen & ~is_callers).fill_null(value=False)
        )
        .filter(~word.is_in(_SHELLS))
    )
    return row_mask(found, calls.height)


def in_code(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return a mask of calls whose texts complain about a name in the caller's program.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`) and `arguments` (JSON).
    """
    quoting = _quoting(texts, calls, _IDENTIFIER)
    word = named_object.as_words(_Quoting.word.col)
    found = quoting.lazy().filter(_code(Judged.arguments.col).str.contains(word, literal=True))
    return row_mask(found, calls.height)


def foreign_field(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return a mask of calls whose texts complain about data that is not the arguments.

    Neither the arguments nor the input schema contain the field that the text names, or the first
    key of the object that the validator rejects is not in the arguments. If the object is empty,
    the schema may be unknown.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` (JSON) and `input_schema` (JSON).
    """
    quoting = _quoting(texts, calls, _FIELD)
    rejected = _quoting(texts, calls, _INPUT)
    word = _Quoting.word.col
    empty = rejected.filter(word == "").get_column(_Quoting.row.name)
    has_schema = Definitions.input_schema.col.is_not_null()
    key = pl.concat_str(pl.lit('"'), word, pl.lit('"'))
    known = pl.concat_str(
        Judged.arguments.col, Definitions.input_schema.col, ignore_nulls=True
    ).str.to_lowercase()
    is_known = known.str.contains(key, literal=True) | word.is_in(_ENVELOPE)
    found = (
        quoting.lazy()
        .filter(has_schema | _Quoting.row.col.is_in(empty.implode()))
        .with_columns(word=word.str.extract_all(_NAME))
        .explode("word", empty_as_null=False)
        .drop_nulls("word")
        .group_by("row")
        .agg(foreign=(~is_known).all())
        .filter("foreign")
    )
    given = Judged.arguments.col.str.to_lowercase().str.contains(word, literal=True)
    other = rejected.lazy().filter(~given, ~word.is_in(_ENVELOPE))
    return row_mask(found, calls.height) | row_mask(other, calls.height)


def lacks_argument(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return a mask of calls whose texts ask for an argument that is declared but not passed.

    The schema declares the argument. An argument that is null, 0 or empty counts as not passed.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` (JSON) and `input_schema` (JSON).
    """
    return _absent_property(texts, calls, _ASKED, with_default=False)


def own_default(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return a mask of calls whose texts reject an argument that the call leaves at its default.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` (JSON) and `input_schema` (JSON).
    """
    return _absent_property(texts, calls, _CHECKED, with_default=True)


def _absent_property(
    texts: pl.Series, calls: pl.DataFrame, pattern: str, *, with_default: bool
) -> pl.Series:
    """Return a mask of calls whose text names an argument that is declared but not passed.

    The schema declares the argument, and the call passes no value for it, or null, 0 or an empty
    value.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` and `input_schema`.
        pattern: the pattern for the argument's name.
        with_default: whether the schema must have a default for the argument.
    """
    schema, word = Definitions.input_schema.name, _Quoting.word.name
    quoting = _quoting(texts, calls, pattern, Definitions.input_schema)
    known = [
        {schema: each, word: _bare(name), _Quoting.property.name: name}
        for each in quoting.get_column(schema).unique()
        for name in _properties(each, with_default=with_default)
    ]
    columns = dict.fromkeys((schema, word, _Quoting.property.name), pl.String)
    given = pl.concat_str(pl.lit('"'), _Quoting.property.col, pl.lit('"'))
    arguments = Judged.arguments.col.str.replace_all(_NOTHING, "")
    found = (
        quoting.lazy()
        .with_columns(_Quoting.word.col.str.replace_all(r"[^a-z\d]", ""))
        .join(pl.DataFrame(known, schema=columns).lazy(), on=[schema, word])
        .filter(~arguments.str.contains(given, literal=True))
    )
    return row_mask(found, calls.height)


def _quoting(texts: pl.Series, calls: pl.DataFrame, pattern: str, *more: Column) -> pl.DataFrame:
    """Join calls with the words that the groups of a pattern extract from their texts.

    Rows with nulls in `arguments` or one of the columns `more` are dropped.
    """
    number = _Quoting.text.col
    words = (
        calls.lazy()
        .select(number.unique())
        .with_columns(
            captured(pl.lit(texts).gather(number), pattern)
            .str.to_lowercase()
            .alias(_Quoting.word.name)
        )
        .drop_nulls()
    )
    return (
        calls.lazy()
        .with_row_index(_Quoting.row.name)
        .join(words, on=_Quoting.text.name)
        .drop_nulls([column.name for column in (Judged.arguments, *more)])
        .pipe(run_query)
    )


def _code(arguments: pl.Expr) -> pl.Expr:
    """Return an expression for the words in all argument values that may be a program."""
    return named_object.as_words(arguments.str.extract_all(_CODE_VALUE).list.join(" "))


def _bare(name: str) -> str:
    """Return a name's letters and digits in lower case: "connection ID" equals `connection_id`."""
    return "".join(each for each in name.lower() if each.isalnum())


def _properties(schema: str, *, with_default: bool) -> Iterator[str]:
    """Yield the names of a JSON Schema's arguments, or only of those with a default."""
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return
    properties = value.get("properties") if isinstance(value, dict) else None
    if isinstance(properties, dict):
        for name, each in properties.items():
            if not with_default or (isinstance(each, dict) and "default" in each):
                yield name


def _offers(schema: str) -> Iterator[str]:
    """Yield the strings that a JSON Schema offers as values, in lower case."""
    try:
        waiting: list[Any] = [msgspec.json.decode(schema)]
    except (msgspec.DecodeError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            for name in _OFFERING:
                given = value.get(name)
                for each in given if isinstance(given, list) else [given]:
                    if isinstance(each, str) and 0 < len(each) <= _MAX_OFFER:
                        yield each.lower()
