"""Writes a Python script that repeats a recorded tool call and compares the outcome.

The script needs only the Python SDK. It starts the recorded server, repeats earlier calls in the
session that may have changed state, makes the call, and exits with 0 (same outcome), 1 (different)
or 2 (not run). With `--record`, it starts the server behind `mcptally record`, which writes a
transcript. Recorded text comes from untrusted servers, so it is inserted only as Python literals.
"""

import json
import pprint
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Template

from mcptally.analytics.explain import one_call
from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import UsageError
from mcptally.protocol.revisions import STATELESS
from mcptally.redaction.display import mask_text
from mcptally.wire.nesting import is_too_deep

SECONDS: Final = 30
"""Minimum time limit of a script in seconds. The limit is twice the call's latency if this is
longer."""

_REDACTED: Final = re.compile(r"\[redacted:[^\]]*\]|redacted-url-password")
"""Matches the text that redaction inserts in place of a secret."""
_PLACEHOLDER: Final = re.compile(rf"<[a-z]+>|…|{_REDACTED.pattern}")
"""Matches a template's placeholders for variable text."""
_NO_REPLY: Final = frozenset({"timeout", "no_response", "cancelled"})
_WORKED: Final = ("ok", "hidden_error", "task", "input_required")
"""Outcomes of earlier calls that may have changed data and are therefore repeated."""
_DEEPEST: Final = 50
"""Maximum nesting of values that become Python literals; Python's parser allows 200 levels."""


class _Variable:
    """A Python expression that replaces a secret: it reads an environment variable."""

    def __init__(self, name: str) -> None:
        self._name: Final = name

    def __repr__(self) -> str:
        return f"os.environ[{self._name!r}]"


class _JsonText:
    """A Python expression that replaces a literal: it parses JSON text."""

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def __repr__(self) -> str:
        return f"json.loads({self._text!r})"


class _Secrets:
    """Replaces secrets with environment variables; equal secrets get the same variable."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """Replace each text in a JSON value that contains a secret with a `_Variable`.

        Raises:
            UsageError: a value with a secret is nested too deeply for a Python literal.
        """
        text = json.dumps(value, ensure_ascii=False)
        masked = mask_text(text)
        if is_too_deep(text.encode("utf-8", "replace"), _DEEPEST):
            if masked != text or _REDACTED.search(text):
                raise UsageError(
                    f"arguments with a secret are nested deeper than {_DEEPEST} levels"
                )
            return _JsonText(text)
        return self._walk(value, value if masked == text else json.loads(masked), "value")

    def _walk(self, value: Any, masked: Any, place: str) -> Any:
        """Replace secrets in a value.

        Args:
            value: a JSON value.
            masked: the same value with secrets masked.
            place: name of the member or option that the value belongs to.
        """
        if isinstance(value, dict) and isinstance(masked, dict) and len(value) == len(masked):
            return {
                self._walk(name, other_name, place): self._walk(member, other, other_name)
                for (name, member), (other_name, other) in zip(
                    value.items(), masked.items(), strict=True
                )
            }
        if isinstance(value, list) and isinstance(masked, list):
            options = (item if str(item).startswith("-") else place for item in masked)
            items = zip(value, masked, [place, *options], strict=False)
            return [self._walk(item, other, before) for item, other, before in items]
        if value == masked and not (isinstance(value, str) and _REDACTED.search(value)):
            return value
        return _Variable(self._name(json.dumps(value), place))

    def _name(self, secret: str, place: str) -> str:
        if secret not in self._names:
            words = re.sub(r"[^A-Za-z0-9]+", "_", place).strip("_").upper()[:30]
            name = f"REPRO_{len(self._names) + 1}_{words}".rstrip("_")
            self._names[secret] = name
        return self._names[secret]

    def names(self) -> Iterable[str]:
        """Return the names of the environment variables, in order of appearance."""
        return self._names.values()


def script(
    store: Store, call: str, *, command: Sequence[str] = (), read_only: Collection[str] = ()
) -> str:
    """Return the script for a call.

    Args:
        store: the store that contains the call.
        call: the `call_id`, or a unique prefix of it.
        command: the command that starts the server; by default, the recorded command.
        read_only: tools that change nothing, in addition to those that are annotated as read-only.

    Raises:
        QueryError: no call has this id, or several ids start with it.
        UsageError: the call cannot be repeated; the message says why.
    """
    return retry_if_replaced([store], lambda: _script(store, call, command, frozenset(read_only)))


_CALLS: Final = """
SELECT calls.*, coalesce(json_extract_string(hints.annotations, '$.readOnlyHint') = 'true', false)
  AS read_only
FROM calls LEFT JOIN (
  SELECT server, tool, definition, any_value(annotations) AS annotations FROM tools GROUP BY ALL
) AS hints USING (server, tool, definition)
"""


def _script(store: Store, call: str, command: Sequence[str], read_only: Collection[str]) -> str:
    row = one_call(store, call, _CALLS).row(0, named=True)
    if row["method"] == "tools/call" and row["tool"] is None:
        raise UsageError(f"call {row['call_id']} names no tool, so the SDK cannot send it")
    if row["method"] != "tools/call" or row["dir"] != "c2s":
        raise UsageError(
            f"call {row['call_id']} is {row['method']}; only calls to tools can be repeated"
        )
    arguments = _arguments(row)
    writes = store.sql(
        f"{_CALLS} WHERE calls.recording = ? AND session IS NOT DISTINCT FROM ? AND seq < ? "
        "AND method = 'tools/call' AND dir = 'c2s' AND calls.tool IS NOT NULL AND NOT read_only "
        'AND list_contains(?, outcome) ORDER BY seq, "index"',
        params=[row["recording"], row["session"], row["seq"], list(_WORKED)],
    ).pl()
    earlier = [
        (each["tool"], _arguments(each))
        for each in writes.iter_rows(named=True)
        if each["tool"] not in read_only
    ]
    secrets = _Secrets()
    outcome = {"hidden_error": "ok"}.get(row["outcome"], row["outcome"])
    server = _server(row, command)
    constants = {
        "SERVER": secrets.replaced(server),
        "LABEL": [] if row["server"] is None else [f"--name={mask_text(row['server'])}"],
        "TOOL": row["tool"],
        "ARGUMENTS": secrets.replaced(arguments),
        "EARLIER_WRITES": [(tool, secrets.replaced(given)) for tool, given in earlier],
        "READ_ONLY": row["read_only"] or row["tool"] in read_only,
        "OUTCOME": "no_reply" if outcome in _NO_REPLY else outcome,
        "ERROR_PARTS": _parts(row["template"], row["error_text"]),
        "MODE": "auto" if row["protocol_version"] in STATELESS else "legacy",
        "SECONDS": max(SECONDS, round(2 * (row["latency_ms"] or 0) / 1000)),
    }
    if isinstance(server, str):
        constants["SSE"] = row["transport"] == "http_sse" and not command
    lines = [f"{name} = {_literal(value, len(name) + 3)}" for name, value in constants.items()]
    variables = "".join(f"\n  {name}" for name in secrets.names())
    environment = (
        f"\nSet these environment variables to the secrets:{variables}" if variables else ""
    )
    template = Path(__file__).with_name("repro.py.jinja").read_text(encoding="utf-8")
    written: str = Template(template, keep_trailing_newline=True).render(
        call_id=row["call_id"],
        environment=environment,
        constants="\n".join(lines),
        is_http="SSE" in constants,
    )
    return written


def _literal(value: Any, indent: int) -> str:
    text = pprint.pformat(value, width=100 - indent, sort_dicts=False)
    return text.replace("\n", "\n" + " " * indent)


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments.

    Raises:
        UsageError: the arguments were not recorded in full, or are not an object.
    """
    try:
        found = {} if row["arguments"] is None else json.loads(row["arguments"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"the arguments of call {row['call_id']} are not a JSON object or were not recorded as "
            "a whole, so the SDK cannot send them"
        )
    return found


def _server(row: dict[str, Any], command: Sequence[str]) -> str | list[str]:
    """Return the server's URL, or the command that starts it.

    Raises:
        UsageError: the recording has neither.
    """
    recorded = row["command"]
    if not command and recorded and re.match(r"https?://", recorded):
        return str(recorded)
    try:
        words = list(command) or json.loads(recorded or "null")
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise UsageError(
            f"the recording of call {row['call_id']} does not say how to start the server; give "
            "the command after `--`"
        )
    return words


def _parts(template: str | None, error_text: str | None) -> list[str]:
    """Return the strings that an error must contain to count as the recorded error.

    These are the template's constant parts. A template may merge several parts of the error text,
    so the error text can lack a constant part of the template. In this case, the words of this part
    that occur in the error text are used.
    """
    if template is None or error_text is None:
        return []
    text = " ".join(error_text.split())
    parts = [" ".join(part.split()) for part in _PLACEHOLDER.split(mask_text(template))]
    parts = [part for part in parts if re.search(r"\w", part)]
    if all(part in text for part in parts):
        return parts
    words = dict.fromkeys(word for part in parts for word in re.findall(r"\w+", part))
    return [word for word in words if word in text]
