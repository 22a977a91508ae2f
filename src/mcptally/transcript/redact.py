"""Applies a redaction policy to existing recordings and writes redacted copies.

The policies are those of the recorder. Text that is not secret is copied unchanged; the source is
not modified. A line that is not a JSON object cannot be searched field by field, so a line that
states the reason replaces it.
"""

import base64
import binascii
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple, cast

import msgspec
import zstandard

from mcptally.errors import UnreadableError, UsageError
from mcptally.redaction.key_patterns import words
from mcptally.redaction.policy import HEADERS, LineRedactor, Policy, policy
from mcptally.transcript.discover import discover
from mcptally.transcript.files import Damage, read_lines
from mcptally.transcript.format import EVENT_NAMES, FORMAT_VERSION, SUFFIXES, WITHHELD
from mcptally.transcript.parse import Member, join_members, parse_members
from mcptally.wire.json_text import decode_or_none

_encode: Final = msgspec.json.encode


@dataclasses.dataclass(slots=True)
class RedactionSummary:
    """The result of `redact`."""

    files: int = 0
    """Number of files copied."""
    events: int = 0
    """Number of event lines."""
    redacted: int = 0
    """Number of strings replaced or hashed, in events and other lines."""
    carried: int = 0
    """Number of JSON objects that are not events. Such objects are redacted like events.

    Lines that an earlier run withheld do not count."""
    withheld: list[str] = dataclasses.field(default_factory=list)
    """Messages about lines that could not be searched: one message per file and reason, which
    states the first line and the number of further lines."""
    dropped: list[str] = dataclasses.field(default_factory=list)
    """Messages about lines that could not be read and are missing from the copy."""


class _Redaction(NamedTuple):
    """The policy of a run, and the run's key for hashing ids."""

    policy: Policy
    key: bytes
    """Random key for hashing ids; without it, an id could be guessed from its hash."""
    stderr: dict[bytes, LineRedactor]
    """Maps recording ids to redactors for stderr, where a private key may span several lines."""


class _LineReasons:
    """The reasons why lines were skipped, each with its first line and number of lines."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}

    def add(self, why: str, line: int) -> None:
        """Count a line."""
        first, count = self._places.get(why, (line, 0))
        self._places[why] = (first, count + 1)

    def messages(self, path: Path) -> list[str]:
        """Return one message per reason, each starting with the location of its first line."""
        return [
            f"{path}:{first}: {why}" + (f" (and {count - 1} more)" if count > 1 else "")
            for why, (first, count) in self._places.items()
        ]


def redact(
    paths: str | Path | Iterable[str | Path], out: str | Path, *, rules: str = "default"
) -> RedactionSummary:
    """Copy the recordings at `paths` into the folder `out`, redacted by the policy `rules`.

    The copies have the same layout and compression, and only their owner can read them. Copies left
    by a killed run are written again.

    Args:
        paths: one or several files, folders or patterns, as for `score`.
        out: the folder, which is created if it does not exist.
        rules: a policy as for `record --redact`, for example `default,+emails`.

    Raises:
        UnreadableError: there is nothing to read, or no file contains events or has a transcript's
            name.
        UsageError: there is no such policy, or `out` overlaps the source or already contains a
            copy.
        OSError: a file cannot be written; the incomplete file is removed.
    """
    roots = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    redaction = _Redaction(policy(rules), secrets.token_bytes(16), {})
    done = RedactionSummary()
    unfinished = Path(out) / UNFINISHED
    copies = _copies(roots, Path(out), anew=unfinished.exists())
    if copies:
        unfinished.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.touch(mode=0o600)
    for source, target in copies:
        _redact_file(source, target, redaction, done)
        done.files += 1
    is_named_as_transcript = any(source.name.endswith(SUFFIXES) for source, _ in copies)
    if copies and not done.events and not done.carried and not is_named_as_transcript:
        for _, target in copies:
            target.unlink()
        unfinished.unlink()
        raise UnreadableError(
            f"{copies[0][0]}: no line is an event of a transcript; nothing was written"
        )
    unfinished.unlink(missing_ok=True)
    return done


UNFINISHED: Final = ".redact-unfinished"
"""Name of a marker file in the output folder until all copies are written."""


def _copies(roots: list[Path], out: Path, *, anew: bool) -> list[tuple[Path, Path]]:
    plan: dict[Path, Path] = {}
    there = out.resolve()
    for root in roots:
        for source in map(Path, discover([root])):
            here = (root if root.is_dir() else source).resolve()
            if here in {there, *there.parents} or (root.is_dir() and there in here.parents):
                raise UsageError(
                    f"{out}: overlaps the source {root}; choose a folder outside it with -o"
                )
            if root.is_dir():
                name = source.relative_to(root)
                target = out / (root.resolve().name if len(roots) > 1 else "") / name
            else:
                target = out / source.name
            if target in plan and plan[target].resolve() != source.resolve():
                raise UsageError(f"{source} and {plan[target]} would both become {target}")
            if target.exists() and not anew:
                raise UsageError(f"{target}: exists already; choose an empty folder with -o")
            plan[target] = source
    return [(source, target) for target, source in plan.items()]


def _redact_file(source: Path, target: Path, redaction: _Redaction, done: RedactionSummary) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)  # left by a killed run
    withheld = _LineReasons()
    try:
        with compressed_like(source, part) as write:
            for run in read_lines(source):
                if isinstance(run, Damage):
                    where = source if run.line is None else f"{source}:{run.line}"
                    done.dropped.append(f"{where}: {run.message}")
                    continue
                for number, line in enumerate(io.BytesIO(run.data), start=run.first):
                    clean, why = _redact_line(line, redaction, done)
                    write(clean)
                    if why:
                        withheld.add(why, number)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    done.withheld += withheld.messages(source)


@contextlib.contextmanager
def compressed_like(source: Path, part: Path) -> Iterator[Callable[[bytes], Any]]:
    """Return a context manager that writes to the new file `part`, compressed like `source`.

    Only the owner can read the file.
    """
    with source.open("rb") as file:
        magic = file.read(4)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(part, flags, 0o600), "wb") as raw:
        if magic.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                yield packed.write
        elif magic == b"\x28\xb5\x2f\xfd":
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as stream:
                yield cast("BinaryIO", stream).write
        else:
            yield raw.write


def _redact_line(
    line: bytes, redaction: _Redaction, done: RedactionSummary
) -> tuple[bytes, str | None]:
    """Return the line to write and, if the original line was withheld, the reason."""
    if not line.strip():
        return line, None
    end = line[len(line.rstrip(b"\r\n")) :]
    members = parse_members(line)
    if isinstance(members, tuple):
        why = members[1]
        size = len(line) - len(end)
        stand_in = {"v": FORMAT_VERSION, WITHHELD: why, "bytes": size}
        return _encode(stand_in) + end, why
    known = dict(members)
    event = decode_or_none(_STRING, known.get("event", b"null")) or ""
    if event in EVENT_NAMES:
        done.events += 1
    elif "event" in known or WITHHELD not in known:  # unless an earlier run withheld the line
        done.carried += 1
    clean, count = _redact_members(event, members, redaction)
    done.redacted += count
    return (line if clean == members else join_members(clean) + end), None


def _redact_members(
    event: str, members: list[Member], redaction: _Redaction
) -> tuple[list[Member], int]:
    """Redact an event's members; return them with the number of strings replaced."""
    count = 0
    clean: list[Member] = []
    others: list[int] = []
    for name, value in members:
        replace = _REDACTOR_OF_FIELD.get(name)
        if replace is None:
            if name not in _NUMBER_FIELDS or not value.isdigit():
                others.append(len(clean))
            clean.append((name, value))
            continue
        if event == "stderr" and name == "text":
            of = dict(members).get("recording", b"")
            lines = redaction.stderr.setdefault(of, LineRedactor(redaction.policy))
            instead, replaced = _redact_text(value, redaction, lines.text)
        else:
            instead, replaced = replace(value, redaction)
        clean.append((name, instead if replaced else value))
        count += replaced
    if others:
        found, replaced = _redact_together([clean[at] for at in others], redaction.policy)
        count += replaced
        for at, member in zip(others, found, strict=True):
            clean[at] = member
    if event == "open":
        policies = _policy_names(dict(clean).get("redaction"), redaction.policy)
        clean = _set_member(clean, "redaction", _encode(policies))
    if event == "raw" and redaction.policy.rules:
        # A short secret could be guessed from a hash of the whole frame.
        clean = [member for member in clean if member[0] != "sha256"]
    if count and event in {"message", "raw", "stderr"}:
        before = decode_or_none(_COUNT, dict(members).get("redacted", b"0")) or 0
        clean = _set_member(clean, "redacted", _encode(count + before))
    return clean, count


def _redact_together(members: list[Member], policy_: Policy) -> tuple[list[Member], int]:
    """Redact, together with their names, the members for which there is no specific redactor.

    A member's name can mark its value as secret.
    """
    clean, count = _redact_json(join_members(members), policy_)
    if not count:
        return members, 0
    found = parse_members(clean)
    if not isinstance(found, tuple) and len(found) == len(members):
        return found, count
    if len(members) == 1:  # too many hits to check
        return [("withheld", _encode(UNREADABLE))], 1
    alone = [_redact_together([member], policy_) for member in members]
    return [member for one, _ in alone for member in one], sum(count for _, count in alone)


def _redact_json(data: bytes, policy_: Policy) -> tuple[bytes, int]:
    return _redact_json_cached(data, policy_) if len(data) <= _CACHED_BYTES else policy_.json(data)


_CACHED_BYTES: Final = 256
"""Maximum length of a cached result. Results for ids and event kinds are cached, because the same
ids and kinds occur on every line."""


@functools.lru_cache(maxsize=1024)
def _redact_json_cached(data: bytes, policy_: Policy) -> tuple[bytes, int]:
    return policy_.json(data)


def _set_member(members: list[Member], name: str, value: bytes) -> list[Member]:
    """Return the members with `name` set to `value`, in its old place or at the end."""
    if name not in dict(members):
        return [*members, (name, value)]
    return [(each, value if each == name else old) for each, old in members]


def _policy_names(before: bytes | None, policy_: Policy) -> str:
    try:
        name = msgspec.json.decode(before or b"null", type=str | None) or "none"
    except msgspec.DecodeError:
        name = "unknown"
    applied = [part for part in name.split("; ") if part != "none"]
    if policy_.name != "none" and policy_.name not in applied:
        applied.append(policy_.name)
    return "; ".join(applied) or "none"


_STRING: Final = msgspec.json.Decoder(str)
_STRINGS: Final = msgspec.json.Decoder(list[str])
_COUNT: Final = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=2**62)])


# --- how each field is redacted -----------------------------------------------------------------

UNREADABLE: Final = "[redacted:unreadable]"
"""Replaces a value that cannot be searched because it has the wrong type for its field."""

_NUMBER_FIELDS: Final = words("v seq ts_ns bytes segment status lost redacted")
"""Fields that mcptally's recorder fills with numbers; such numbers are not searched."""


def _redact_msg(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    return redaction.policy.json(value)


def _redact_text(
    value: bytes,
    redaction: _Redaction,
    redact_bytes: Callable[[bytes], tuple[bytes, int]] | None = None,
) -> tuple[bytes, int]:
    if (text := decode_or_none(_STRING, value)) is None:
        return redaction.policy.json(value)
    clean, count = (redact_bytes or redaction.policy.text)(text.encode())
    return _encode(clean.decode(errors="replace")), count


def _redact_b64(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    """Redact the bytes in a base64 value; a value that is not base64 is replaced entirely."""
    if value == b"null" or not redaction.policy.rules:
        return value, 0
    try:
        data = base64.b64decode(msgspec.json.decode(value, type=str), validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):  # ValueError: not ASCII
        clean, count = UNREADABLE.encode(), 1
    else:
        clean, count = redaction.policy.text(data)
    return _encode(base64.b64encode(clean).decode()), count


def _redact_url(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    if (url := decode_or_none(_STRING, value)) is None:
        return redaction.policy.json(value)
    clean, count = redaction.policy.url(url)
    return _encode(clean), count


def _redact_command(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    if (command := decode_or_none(_STRINGS, value)) is None:
        return _replace_unreadable(value, redaction)
    clean, count = redaction.policy.argv(command)
    return _encode(clean), count


def _redact_headers(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    """Return redacted headers; headers not on the recorder's allowlist keep only their names."""
    headers = parse_members(value)
    if isinstance(headers, tuple):
        return _replace_unreadable(value, redaction)
    clean = [(name, _redact_header(name, text, redaction.policy)) for name, text in headers]
    names, count = _redact_together(clean, redaction.policy)
    count += sum(old != new for old, new in zip(headers, clean, strict=True))
    return join_members(names), count


def _replace_unreadable(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    """Replace a value of the wrong type, since the rules may miss a secret in it."""
    instead = _encode(UNREADABLE)
    if value in {b"null", instead} or not redaction.policy.rules:
        return value, 0
    return instead, 1


def _redact_header(name: str, value: bytes, policy_: Policy) -> bytes:
    if (text := decode_or_none(_STRING, value)) is None:
        return _encode("[redacted:header]") if policy_.rules else value
    if name.lower() in HEADERS:
        clean = policy_.headers([(name, text)])[0][name.lower()]
    else:
        clean = "[redacted:header]" if policy_.rules else text
    return value if clean == text else _encode(clean)


def _redact_id(value: bytes, redaction: _Redaction) -> tuple[bytes, int]:
    """Replace an id that contains a secret with its hash, so that equal ids stay equal."""
    if not _redact_json(value, redaction.policy)[1]:
        return value, 0
    text = (
        decode_or_none(_STRING, value) or ""
    ).encode() or value  # decode the id, because other events may escape it differently
    digest = hashlib.blake2b(text, digest_size=8, key=redaction.key).hexdigest()
    return _encode(f"[hashed:id:{digest}]"), 1


_REDACTOR_OF_FIELD: Final[Mapping[str, Callable[[bytes, _Redaction], tuple[bytes, int]]]] = {
    "msg": _redact_msg,
    "text": _redact_text,
    "b64": _redact_b64,
    "path": _redact_url,
    "url": _redact_url,
    "command": _redact_command,
    "headers": _redact_headers,
    # Older recorders derived the label from an argument of the command, which may be a token.
    "server": _redact_text,
    "recording": _redact_id,
    "scope": _redact_id,
    "sse_id": _redact_id,
}
"""Maps fields to redactors; all other fields are searched together as JSON."""
