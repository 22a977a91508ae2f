"""Decides whether the object that an error text names comes from the caller.

`No such file: 'notes.txt'` is the caller's mistake if the arguments name the file. Otherwise, the
server looked for one of its own files and is at fault. `Index not found` is the caller's mistake if
the arguments or the tool's name mention an index.
"""

from typing import Final

import polars as pl

from mcptally.tables.arrow import captured
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import row_mask
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged

_QUOTED: Final = r"""(?:^|[^\w'"`])['"`‘]([^'"`’\n]*)['"`’]"""  # noqa: RUF001  (GNU's quotes)
_JSON_CODE: Final = (
    r"""(?s)^(?:[^{"'\n]{0,100}[{"'\s:]+error["'\s:{]+)?['"]?(?:code|type|kind|status)['"]\s*:"""
    r"""\s*(?:"[^"\n]*"|'[^'\n]*'|-?\d+)\s*,\s*['"](?:message|msg|details?)['"]\s*:\s*"""
    r"""(?:"((?:[^"\\]|\\.)*).*|'(.*))$"""
)
"""Matches `{"error": {"code": "…", "message": "…"}}`; the groups are the message."""
_NO_SUCH: Final = (
    r"(?i)\b(?:no such (?:table|column|function|module|view|index)[:=]? |unknown command ['\"`])"
    r"((?-i:[\w.])+)"
    r"|\bno such file or directory: ['\"]([^'\"\n]+)['\"]"
)
"""Matches an object named by SQLite, a command named by Redis, and the file or program named by
CPython; other quoted words are values or belong to the text around the message."""
_PROGRAM: Final = r"^[a-z][\w+-]*$"
"""Matches the name of a program, if an error says that the file does not exist."""
_BETWEEN_WHOLE: Final = r'[\s"/\\;|&()=:,]+'
"""Matches what separates a program's name from other words in a command or a list of values."""
_UNQUOTED: Final = (
    r"(?i)\bNOT NULL constraint failed: \S+\.((?-i:\w)+)|\bno enum constant \S+\.((?-i:\w)+)"
    r"|\bno such file or directory(?: @ \S+)? - (\S+)|\bhas no column named ((?-i:\w)+)"
    r"|(?:^|[\s(])[/\w]*sh: (?:line )?(?:\d+: )?((?-i:[\w.+-])+): (?:command )?not found"
    r"|\bspawn (\S+) E(?:NOENT|ACCES)\b"
    r"|(?:^|[\s(])((?:[A-Za-z]:[\\/]|/)[^\s:,;)]{2,})"
    r"|\b((?-i:[\w-])+\.(?:json|ya?ml|toml|ini|conf|cfg|env|properties|db|sqlite3?|onnx|bin|pem|crt|lock"
    r"|log|html|tmpl|j2|so|dll|dat|pkl|npz|gguf|pt|csv|tsv|txt|xml))\b"
    r"|^((?-i:[\w.+-])+): (?:command not found|not found$|no such file or directory)"
)
"""Matches the name of a column, a path, the file of a program, or a program that a shell names."""
_DONE: Final = (
    r"(?:started|initiali[sz]ed|loaded|opened|mounted|spawned|launched|booted|compiled|allocated"
    r"|instantiated|bound|rendered|refreshed|acquired|written|flushed|serialized|restored|decrypted)"
)
_DO: Final = (
    r"(?:start|initiali[sz]e|load|open|mount|spawn|launch|boot|compile|allocate|instantiate|bind"
    r"|render|refresh|acquire|write(?: to)?|append to|flush|serialize|restore|decrypt)"
)
_COMPONENT: Final = (
    rf"(?i)\b([a-z][\w-]+) (?:(?:could|can)(?: not|n't)|cannot) be {_DONE}\b"
    rf"|\b([a-z][\w-]+) (?:failed to|cannot|could not) {_DO}\b"
    rf"|\b(?:failed to|cannot|could(?: not|n't)|unable to) {_DO} "
    r"(?:the |an? |its )?(?:[\w-]+ ){0,2}?([a-z][\w-]+)(?:$|[.,:;\n(])"
    r"|\b([a-z][\w-]+) (?:is|was|has|are|have)(?: not|n't| never)(?: been)? "
    r"(?:mounted|initiali[sz]ed|downloaded|compiled|provisioned|licensed)\b"
    r"|\b(databases?|db|cache|indexe?s?|indices|config(?:uration)?|settings|credentials?|models?"
    r"|llm|weights|tokenizer|embeddings?|embedder|binary|executable|drivers?|engine|runtime|interpreter"
    r"|compiler|kernel|backend|transport|plugins?|extensions?|librar(?:y|ies)|toolkit|cli|daemon"
    r"|certificates?|private key|licen[cs]e|templates?|schema|migrations?|state|stor(?:e|age)"
    r"|buckets?|registry|catalog|manifest|lock ?file|logs?|key(?:chain|ring)|dictionary|corpus"
    r"|data ?sets?|lookup table|data files?|directory|folder|fonts?|assets?|grammar|knowledge base"
    r"|service account|accounts?|history|language server|web ?hook|converter|renderer|environment"
    r"|profile|proxy|worker|provider|client|graph|memory)\b"
)
"""Matches the name of an object that is missing or unusable, or a word for a component of a server.
"""
_ALIASES: Final = {"database": "db", "directory": "dir"}
_STEM: Final = 4
"""Number of letters at the start of a component's name that must occur in a call for the call to
mention the component."""
_LAST_PART: Final = r"[/\\]([^/\\]{2,}?|\d)(?:\.[0-9A-Za-z_[^\x00-\x7f]]{1,8})?[/\\]?$"
r"""Matches a path's last component, without its suffix. Eight copies of `\w` take 1 ms to compile.
"""
_VALUE: Final = r"""(?:"[^"\\]{3,200}"|[-\d.]{2,})\s*[,\]}]"""
"""Matches a string or number that is a value in JSON, not a key, which a colon follows."""
_NUMBER: Final = r"^\d{1,3}$"
"""Matches a quoted number. It is often a code; the object is then a name or path after the number.
"""
LONG: Final = 16
"""Length above which names are not compared word by word: long names do not occur in other words by
chance, finding words is slow, and texts may truncate names."""
_MAX_BYTES: Final = 4096
"""Size of arguments in bytes above which no names are compared word by word."""
_BETWEEN_WORDS: Final = r"(?:\\[nrtbf]|[^\p{L}\p{N}])+"
_PLAIN: Final = r"^[ -!#-\[\]-~]+$"
"""Matches objects without characters that JSON may escape. Other objects might not be found in
JSON."""


class _Objects(StageTable):
    """One row per text that names an object."""

    text = Column(pl.UInt32, "Row of the text.")
    name = Column(pl.String, "The object in lower case.")
    last = Column(pl.String, "The last part of its path.")
    object = Column(pl.String, "The words of the object.")
    last_part = Column(pl.String, "The words of the last part.")
    is_plain = Column(pl.Boolean, "Whether JSON has no other way to write the object.")
    is_program = Column(pl.Boolean, "Whether it is a missing program, which must be a whole word.")


class _Named(_Objects):
    """One row per pair of such a text and distinct arguments of its calls."""

    arguments = Judged.arguments
    key = Column(pl.UInt64, "Hash of the arguments.")
    lower = Column(pl.String, "The arguments in lower case.")
    is_in = Column(pl.Boolean, "Whether they contain the object or its last part.")
    is_long = Column(pl.Boolean, "Whether words are not compared.")
    row = Column(pl.UInt32, "Number of the row.")
    is_named = Column(pl.Boolean, "Whether the arguments name the object.")
    value = Column(pl.String, "A value in the arguments.")
    source = Column(pl.String, "`caller`, `server` or null.")


class _Components(StageTable):
    """One row per text that names a component of the server."""

    whole = Column(pl.String, "The text.")
    quoted = Column(pl.String, "The first quoted word of the text.")
    word = Column(pl.String, "The component.")
    stem = Column(pl.String, "Its first letters.")
    alias = Column(pl.String, "Another word for it.")
    unmentioned = Column(pl.Boolean, "Whether the call does not mention it.")


def source(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return where the object in each call's text comes from: `caller`, `server` or null (unknown).

    The caller named the object if the arguments contain the object or the last part of its path, or
    if the object contains an argument's value. The object is the name after SQLite's "no such",
    else the first quoted word, else an unquoted name or path; an unquoted name takes precedence
    over a quoted number of up to three digits.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`) and `arguments` (JSON).
    """
    objects = _objects(texts)
    if not objects.height:
        return pl.Series([None], dtype=pl.String).new_from_index(0, calls.height)
    arguments, lower = Judged.arguments.col, _Named.lower.col
    keyed = calls.with_columns(key=arguments.hash())
    is_in = lower.str.contains(_Objects.name.col, literal=True)
    is_in |= lower.str.contains(_Objects.last.col, literal=True).fill_null(value=False)
    is_long = (lower.str.len_bytes() > _MAX_BYTES) | (_Objects.name.col.str.len_bytes() > LONG)
    named = (
        keyed.lazy()
        .filter(arguments.is_not_null())
        .unique(["text", "key"])
        .join(objects.lazy(), on="text")
        .with_columns(lower=arguments.str.to_lowercase())
        .with_columns(is_in=is_in, is_long=is_long)
        .with_row_index("row")
        .pipe(run_query)
    )
    named = named.with_columns(is_named=_is_named(named))
    is_callers = named.get_column(_Named.is_named.name) | _has_value(named)
    sources = named.lazy().select(
        "text",
        "key",
        source=pl.when(is_callers).then(pl.lit("caller")).when("is_plain").then(pl.lit("server")),
    )
    return (
        keyed.lazy()
        .select("text", "key")
        .join(sources, on=["text", "key"], how="left", maintain_order="left")
        .pipe(run_query)
        .get_column(_Named.source.name)
    )


def names_unmentioned_component(texts: pl.Series, calls: pl.DataFrame) -> pl.Series:
    """Return, for each call, whether its text names a component that the call does not mention.

    A call mentions a component if its arguments or the tool's name contain the first letters of the
    component's name. The result is False for calls without arguments, and for texts that name no
    component.

    Args:
        texts: texts without wrappers.
        calls: `text` (row index in `texts`), `arguments` (JSON) and `tool`.
    """
    numbers = calls.get_column(_Objects.text.name).unique()
    stems = (
        texts.gather(numbers)
        .to_frame("whole")
        .lazy()
        .select(
            pl.lit(numbers).alias("text"),
            word=captured(_Components.whole.col, _COMPONENT).str.to_lowercase(),
        )
        .with_columns(
            stem=_Components.word.col.str.head(_STEM),
            alias=_Components.word.col.replace_strict(
                _ALIASES, default=None, return_dtype=pl.String
            ),
        )
    )
    arguments = Judged.arguments.col.str.to_lowercase()
    has_any = arguments.str.contains(":", literal=True)
    tool = pl.when(has_any).then(Judged.tool.col.str.to_lowercase()).fill_null("")
    call = pl.concat_str(arguments, tool)
    mentions = call.str.contains(_Components.stem.col, literal=True)
    mentions |= call.str.contains(_Components.alias.col, literal=True).fill_null(value=False)
    return (
        calls.lazy()
        .join(stems, on="text", how="left", maintain_order="left")
        .select(unmentioned=(~mentions).fill_null(value=False))
        .pipe(run_query)
        .get_column(_Components.unmentioned.name)
    )


def as_words(text: pl.Expr) -> pl.Expr:
    """Return each text's letters and digits in lower case, with a space around every word.

    In this form, a text contains another text only if it contains the same words in sequence.
    """
    words = text.str.to_lowercase().str.replace_all(_BETWEEN_WORDS, " ").str.strip_chars(" ")
    return pl.concat_str(pl.lit(" "), words, pl.lit(" "))


def _is_named(named: pl.DataFrame) -> pl.Series:
    """Return a mask of the objects in the arguments; short objects are compared word by word."""
    words = pl.col("words")
    whole = _Named.lower.col.str.replace_all(_BETWEEN_WHOLE, " ")
    found = (
        named.lazy()
        .filter(_Named.is_in.col & ~_Named.is_long.col)
        .select(
            "row",
            "last_part",
            object=pl.when("is_program")
            .then(pl.concat_str(pl.lit(" "), "name", pl.lit(" ")))
            .otherwise("object"),
            words=pl.when("is_program").then(whole).otherwise(as_words(_Named.lower.col)),
        )
        .filter(
            words.str.contains(_Objects.object.col, literal=True)
            | words.str.contains(_Objects.last_part.col, literal=True).fill_null(value=False)
        )
    )
    long = named.get_column(_Named.is_in.name) & named.get_column(_Named.is_long.name)
    return long | row_mask(found, named.height)


def _name(text: pl.Expr) -> pl.Expr:
    """Return the words of a name; empty if the name has neither letters nor digits."""
    words = as_words(text)
    return pl.when(words.str.strip_chars(" ") == "").then(pl.lit("")).otherwise(words)


def _objects(texts: pl.Series) -> pl.DataFrame:
    """Return one row per text that names an object."""
    whole, quoted = _Components.whole.col, _Components.quoted.col
    texts = texts.str.replace(_JSON_CODE, "$1$2")
    is_number = quoted.str.contains(_NUMBER)
    unquoted = captured(pl.when(quoted.is_null() | is_number).then("whole"), _UNQUOTED)
    return (
        texts.to_frame("whole")
        .lazy()
        .select(
            "whole",
            no_such=whole.str.extract_groups(_NO_SUCH),
            quoted=whole.str.extract(_QUOTED, 1),
        )
        .with_row_index("text")
        .unnest("no_such", separator="_")
        .with_columns(unquoted.alias("unquoted"))
        .select(
            "text",
            name=pl.coalesce(
                "^no_such_.*$", pl.when(~is_number).then(quoted), "unquoted", quoted
            ).str.to_lowercase(),
            is_program=pl.col("no_such_2").str.contains(_PROGRAM).fill_null(value=False),
        )
        .drop_nulls("name")
        .with_columns(last=_Objects.name.col.str.extract(_LAST_PART, 1))
        .with_columns(
            object=_name(_Objects.name.col),
            last_part=_name(_Objects.last.col),
            is_plain=_Objects.name.col.str.contains(_PLAIN),
        )
        .pipe(run_query)
    )


def _has_value(named: pl.DataFrame) -> pl.Series:
    """Return a mask of the objects that contain an argument's value.

    The mask is False where `is_named` is true.
    """
    found = (
        named.lazy()
        .filter(~_Named.is_named.col)
        .select("object", "row", value=Judged.arguments.col.str.extract_all(_VALUE))
        .explode("value", empty_as_null=False)
        .filter(_Objects.object.col.str.contains(as_words(_Named.value.col), literal=True))
    )
    return row_mask(found, named.height)
