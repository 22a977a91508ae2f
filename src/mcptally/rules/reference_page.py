"""Lists the rules in all files, as rows for `mcptally rules` and as the reference page."""

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import msgspec

from mcptally import rules
from mcptally.errors import UsageError, near
from mcptally.redaction.key_patterns import NAME_RULES, NameRule
from mcptally.redaction.prose_patterns import PROSE_PATTERNS
from mcptally.redaction.secret_patterns import (
    ENCODED,
    SECRET_PATTERNS,
    TOKEN_PREFIXES,
    SecretPattern,
    TokenPrefix,
)

FILES: Final = (
    "archive.toml",
    "protocol.toml",
    "schema.toml",
    "definitions.toml",
    "definitions-smells.toml",
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
"""Names of rule files in the order of the page; all other files come last, sorted by name."""

FIRST: Final = (
    "id",
    "title",
    "severity",
    "about",
    "since",
    "until",
    "apart_from",
    "source",
    "note",
)
"""The fields that are shown first for a rule."""

EXAMPLES: Final = ("fires", "silent")
"""The fields that are shown last for a rule."""


@dataclasses.dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules in one file."""

    name: str
    about: str
    """The comment at the top of the file."""
    rows: tuple[dict[str, Any], ...]
    """The rules, with their measured counts."""


def rule_files() -> tuple[RuleFile, ...]:
    """Read all rule files of the package, in the order of `FILES`."""
    texts = {
        item.name: item.read_text(encoding="utf-8")
        for item in resources.files(__package__).iterdir()
        if item.name.endswith(".toml")
    }
    files = (
        RuleFile(name, _heading(texts[name]), tuple(_rows(texts[name])))
        for name in sorted(texts, key=_position)
    )
    return (*files, _redaction())


def _rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield the rules of a file, with their measured counts."""
    for row in tomllib.loads(text).get("rule", ()):
        yield row | rules.measured().get(row["id"], {})


def _redaction() -> RuleFile:
    """Return the recorder's redaction rules as if they were a rule file."""
    rows = []
    patterns: tuple[NameRule | SecretPattern | TokenPrefix, ...] = (
        *NAME_RULES,
        *SECRET_PATTERNS,
        *PROSE_PATTERNS,
        *TOKEN_PREFIXES,
        ENCODED,
    )
    for pattern in patterns:
        row = {key: value for key, value in msgspec.structs.asdict(pattern).items() if value}
        row["id"] = f"redaction.{row.pop('name')}"
        row["policies"] = sorted(row.pop("on"))
        if "default" not in row["policies"]:
            row["note"] = "Off by default."
        for key in ("prefixes", "needles", "fires", "silent"):
            if key in row:
                row[key] = list(row[key])
        rows.append(row)
    about = (
        "What the recorder replaces in its copy. `--redact default,+emails,-jwt` switches a rule "
        "on or off by the last part of its id. These rules are rows of `redaction/secrets.toml`."
    )
    return RuleFile("redaction", about, tuple(rows))


def _position(name: str) -> tuple[int, str]:
    """Return the key by which files are sorted: position in `FILES`, then name."""
    for position, pattern in enumerate(FILES):
        begin, star, end = pattern.partition("*")
        if name == pattern or (star and name.startswith(begin) and name.endswith(end)):
            return position, name
    return len(FILES), name


def _heading(text: str) -> str:
    """Return the first paragraph of comments in a file."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return " ".join(lines).strip()


def find_rules(name: str | None = None) -> list[dict[str, Any]]:
    """Find the rule with the id `name`, or all rules of a group such as `protocol`.

    Without a name, returns all rules.

    Raises:
        UsageError: there is no rule or group with this name.
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
        hint = near(name, [*ids, *groups]) or "; mcptally rules lists them"
        raise UsageError(f"no rule is called {name!r}{hint}")
    return group


def format_rule(row: dict[str, Any]) -> str:
    """Format one rule with all its fields for a terminal."""
    names: list[str] = [name for name in FIRST if name in row]
    names += [name for name in row if name not in (*FIRST, *EXAMPLES, "keywords")]
    width = max(map(len, [*names, "silent"]))
    fields = [(name, row[name]) for name in names]
    fields += [(name, example) for name in EXAMPLES for example in row.get(name, ())]
    return "".join(f"{name:<{width}}  {_value(value, width)}\n" for name, value in fields)


def _value(value: Any, width: int) -> str:
    """Format a field's value as text; indent its second and later lines."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.strip("\n").replace("\n", "\n" + " " * (width + 2))


def render_reference_page() -> str:
    """Render the reference page of all rules as Markdown."""
    parts = [_INTRODUCTION]
    for file in rule_files():
        with_severity = any("severity" in row for row in file.rows)
        columns = ["rule", *(["severity"] if with_severity else []), "what it finds", "source"]
        lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for row in file.rows:
            cells = [f"`{row['id']}`", _description(row), _escaped(row["source"])]
            if with_severity:
                cells.insert(1, row.get("severity", ""))
            lines.append(f"| {' | '.join(cells)} |")
        if file.rows:
            parts.append("\n".join([f"## `{file.name}`\n\n{_escaped(file.about)}\n", *lines, ""]))
    return "\n".join(parts)


def _description(row: dict[str, Any]) -> str:
    """Return the table cell that describes a rule: title, note, differing sources, revisions."""
    text = f"{row['title']}."
    if row.get("note"):
        text += f" {row['note']}"
    for reading in ("document", "program"):
        if row.get(reading):
            text += f" The {reading}: {row[reading]}."
    if row.get("since"):
        until = f" until {row['until']}" if row.get("until") else ""
        apart = f", apart from {', '.join(row['apart_from'])}" if row.get("apart_from") else ""
        text += f" Holds since {row['since']}{until}{apart}."
    return _escaped(text)


def _escaped(text: str) -> str:
    """Escape text for use in a Markdown table."""
    text = " ".join(text.split())
    for mark in "\\|<*_[":
        text = text.replace(mark, "\\" + mark)
    return text


_INTRODUCTION: Final = """\
<!-- generated from the rules -->
# The rules

Every rule is a row of a TOML file in `src/mcptally/rules/`; the redaction rules, which the recorder
reads, are rows of Python modules. Every rule has examples on which it must fire and examples on
which it must stay silent. `mcptally rules ID` shows all fields of a rule, examples included.

Rules with a severity make the rows of the table `findings`. `error`: the source says "must" or
"must not". `warning`: it says "should", or what the rule finds is likely to do harm. `info`: good
to know, and often not a fault. [The manual review](../explanation/public-servers.md) says how often
findings were wrong on recorded traffic.

The examples of these rules are conversations, one message per line:

| line | meaning |
|---|---|
| `@2025-06-18` | the handshake of this revision, with every capability declared |
| `> {…}` and `< {…}` | a message from the client or from the server, over stdio |
| `>raw …` and `<raw …` | text that is sent but is not JSON |
| `tools […]` | `tools/list`, answered with these tools |
| `call NAME {arguments} {result}` | a call to a tool and its result |
| `h1 POST {headers}`, `h1 200 {headers}` | request and response line of an HTTP exchange h1 |
| `h1 > {…}`, `h1 < {…}` | a message in that exchange |
| `= {…}` | any event of a transcript |
| <code>&#124; …</code> | a line of the file, unchanged |
| `seq N` | the sequence number of the next event |
| `+ MS` | the time in milliseconds that passes before the next event |
| `META` | the `_meta` of a request of 2026-07-28 |
| `TOKEN36` | 36 characters of a made-up token |
| `$…` | a file that cannot be written as lines |
"""
