"""Every rule of every file: as rows for `mcptally rules`, and as the reference page."""

import dataclasses
import json
import tomllib
from importlib import resources
from typing import Any, Final

from mcptally.errors import UsageError, near
from mcptally.redaction.key_patterns import PLACES, Place
from mcptally.redaction.secret_patterns import PREFIXES, SHAPES, Prefix, Shape

FILES: Final = (
    "archive.toml",
    "protocol.toml",
    "schema.toml",
    "definitions.toml",
    "leaks.toml",
    "verdict-*.toml",
    "hidden.toml",
    "contracts-*.toml",
    "phases.toml",
    "regular.toml",
    "seed.toml",
    "inspector.toml",
    "scenario.toml",
    "redaction",
)
"""Rule files in the order of the page; files not named here come last, by name."""

FIRST: Final = ("id", "title", "severity", "about", "revisions", "source", "note")
"""What a row says first, where it says it."""

EXAMPLES: Final = ("fires", "silent")


@dataclasses.dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of one file."""

    name: str
    about: str
    """The comment that the file begins with."""
    rows: tuple[dict[str, Any], ...]


def rule_files() -> tuple[RuleFile, ...]:
    """Every rule file of the package with its rows, as they are written."""
    texts = {
        item.name: item.read_text(encoding="utf-8")
        for item in resources.files(__package__).iterdir()
        if item.name.endswith(".toml")
    }
    files = (
        RuleFile(name, _heading(texts[name]), tuple(tomllib.loads(texts[name]).get("rule", ())))
        for name in sorted(texts, key=_place)
    )
    return (*files, _redaction())


def _redaction() -> RuleFile:
    """What the recorder hides, from the rows that it reads."""
    rows = []
    every: tuple[Place | Shape | Prefix, ...] = (*PLACES, *SHAPES, *PREFIXES)
    for row in every:
        said = {key: value for key, value in row._asdict().items() if value}
        said["id"] = f"redaction.{said.pop('name')}"
        said["policies"] = sorted(said.pop("on"))
        if "default" not in said["policies"]:
            said["note"] = "Not by default."
        for key in ("prefixes", "needles", "fires", "silent"):
            if key in said:
                said[key] = list(said[key])
        rows.append(said)
    about = (
        "What the recorder replaces in its copy; `--redact default,+emails,-jwt` switches a rule "
        "on or off by the last part of its id. Rows of `record/redaction_rules.py` and "
        "`secret_shapes.py`, where the recorder pays nothing to read them."
    )
    return RuleFile("redaction", about, tuple(rows))


def _place(name: str) -> tuple[int, str]:
    for place, pattern in enumerate(FILES):
        begin, star, end = pattern.partition("*")
        if name == pattern or (star and name.startswith(begin) and name.endswith(end)):
            return place, name
    return len(FILES), name


def _heading(text: str) -> str:
    """The first paragraph of comments."""
    words: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    return " ".join(words).strip()


def find_rules(name: str | None = None) -> list[dict[str, Any]]:
    """The rows of one id, of a group of ids (`protocol`), or all.

    Raises:
        UsageError: neither a rule nor a group is called so.
    """
    rows = [row for file in rule_files() for row in file.rows]
    if name is None:
        return rows
    exact = [row for row in rows if row["id"] == name]
    if exact:
        return exact
    group = [row for row in rows if row["id"].startswith(name.rstrip(".") + ".")]
    if not group:
        ids = [row["id"] for row in rows]
        groups = sorted({id_.rsplit(".", 1)[0] for id_ in ids})
        raise UsageError(f"no rule is called {name!r}{near(name, [*ids, *groups])}")
    return group


def words(row: dict[str, Any]) -> str:
    """One rule in full, for a terminal."""
    names: list[str] = [name for name in FIRST if name in row]
    names += [name for name in row if name not in FIRST + EXAMPLES]
    width = max(map(len, [*names, "silent"]))
    said = [(name, row[name]) for name in names]
    said += [(name, example) for name in EXAMPLES for example in row.get(name, ())]
    return "".join(f"{name:<{width}}  {_value(value, width)}\n" for name, value in said)


def _value(value: Any, width: int) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.strip("\n").replace("\n", "\n" + " " * (width + 2))


def reference() -> str:
    """The reference page of all rules, in Markdown."""
    parts = [_INTRODUCTION]
    for file in rule_files():
        judged = any("severity" in row for row in file.rows)
        columns = ["rule", "severity", "what it says", "source"] if judged else _PLAIN_COLUMNS
        lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for row in file.rows:
            cells = [f"`{row['id']}`", _said(row), _escaped(row["source"])]
            if judged:
                cells.insert(1, row.get("severity", ""))
            lines.append(f"| {' | '.join(cells)} |")
        if file.rows:
            parts.append("\n".join([f"## `{file.name}`\n\n{_escaped(file.about)}\n", *lines, ""]))
    return "\n".join(parts)


_PLAIN_COLUMNS: Final = ["rule", "what it says", "source"]


def _said(row: dict[str, Any]) -> str:
    said = f"{row['title']}."
    if row.get("note"):
        said += f" {row['note']}"
    for reading in ("document", "program"):
        if row.get(reading):
            said += f" The {reading}: {row[reading]}."
    if row.get("revisions"):
        said += f" Holds for {', '.join(row['revisions'])}."
    return _escaped(said)


def _escaped(text: str) -> str:
    """Text inside a table of Markdown."""
    text = " ".join(text.split())
    for mark in "\\|<*_[":
        text = text.replace(mark, "\\" + mark)
    return text


_INTRODUCTION: Final = """\
<!-- generated: python -m tests.docs.generated -->
# The rules

Every rule is a row of a TOML file in `src/mcptally/rules/` (of a Python module where the recorder
reads it), with examples on which it must fire and examples on which it must stay silent;
`mcptally rules ID` shows a row in full, examples included.

Rules with a severity make the rows of the table `findings`. `error`: the source says must, or
must not. `warning`: it says should, or what is found is likely to do harm. `info`: good to know,
and often nobody's fault. How often they were wrong on recorded traffic:
[findings, reviewed](../explanation/findings.md).

Their examples are conversations, one line a message:

| line | means |
|---|---|
| `@2025-06-18` | the handshake of this revision, every capability declared |
| `> {…}` and `< {…}` | a message of the client, of the server, on a pipe |
| `>raw …` and `<raw …` | what is sent and is no JSON |
| `tools […]` | `tools/list`, answered with these tools |
| `call NAME {arguments} {result}` | a call of a tool and its result |
| `h1 POST {headers}`, `h1 200 {headers}` | the heads of an HTTP exchange called h1 |
| `h1 > {…}`, `h1 < {…}` | a message in that exchange |
| `= {…}` | any event of a transcript |
| <code>&#124; …</code> | a line of the file as it is |
| `seq N`, `+ MS` | the next event's number; time passes |
| `META` | the `_meta` of a request of 2026-07-28 |
| `TOKEN36` | 36 characters of made-up token text |
| `$…` | a file that no lines can spell |
"""
