"""A redaction policy applied to recordings that exist: same files, same events, fewer secrets.

What a recorder would have hidden is hidden now, by the same policies. Everything else is copied as
it stands; nothing is counted, repaired or rebuilt, and the source is only read.
"""

import base64
import binascii
import contextlib
import dataclasses
import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import zstandard

from mcptally.archive import Damage, lines
from mcptally.errors import UsageError
from mcptally.finding import discover
from mcptally.frame import EVENTS
from mcptally.record.redact import HEADERS, Policy, policy
from mcptally.record.redaction_rules import words

_Fields = dict[str, bytes]
"""An event's fields as the JSON text of each."""

_DECODE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.encode


@dataclasses.dataclass(slots=True)
class Redacted:
    """What was done."""

    files: int = 0
    """Files copied."""
    events: int = 0
    """Lines that are events."""
    redacted: int = 0
    """Strings replaced or hashed, in events and other lines."""
    carried: int = 0
    """Lines that are no events: copied, redacted as text."""
    dropped: list[str] = dataclasses.field(default_factory=list)
    """Where lines could not be read and are missing from the copy, and why."""


def redact(paths: Iterable[str | Path], out: str | Path, *, rules: str = "default") -> Redacted:
    """Copy the recordings that `paths` name into the folder `out`, redacted by the policy `rules`.

    Layout and compression stay. Files are readable by their owner only.

    Args:
        paths: files, folders and patterns, as `score` takes them.
        out: the folder; it is made where it is not there.
        rules: a policy as `record --redact` takes it, for instance `default,+emails`.

    Raises:
        UnreadableError: nothing there.
        UsageError: no such policy; or `out` overlaps the source, or has one of the files already.
        OSError: the disk refuses; what was begun is removed.
    """
    hide = policy(rules)
    done = Redacted()
    for source, target in _plan([Path(p) for p in paths], Path(out)):
        _file(source, target, hide, done)
        done.files += 1
    return done


def _plan(roots: list[Path], out: Path) -> list[tuple[Path, Path]]:
    plan: dict[Path, Path] = {}
    there = out.resolve()
    for root in roots:
        for source in discover([root]):
            here = (root if root.is_dir() else source).resolve()
            if here in {there, *there.parents} or (root.is_dir() and there in here.parents):
                raise UsageError(
                    f"{out}: overlaps the source {root}; name a folder outside of it with -o"
                )
            if root.is_dir():
                name = source.relative_to(root)
                target = out / (root.resolve().name if len(roots) > 1 else "") / name
            else:
                target = out / source.name
            if target in plan and plan[target].resolve() != source.resolve():
                raise UsageError(f"{source} and {plan[target]} would both become {target}")
            if target.exists():
                raise UsageError(f"{target}: is there already; name an empty folder with -o")
            plan[target] = source
    return [(source, target) for target, source in plan.items()]


def _file(source: Path, target: Path, hide: Policy, done: Redacted) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        with written_like(source, part) as write:
            for run in lines(source):
                if isinstance(run, Damage):
                    where = source if run.line is None else f"{source}:{run.line}"
                    done.dropped.append(f"{where}: {run.message}")
                    continue
                begin, data = 0, run.data
                while begin < len(data):
                    end = data.find(b"\n", begin) + 1 or len(data)
                    write(_line(data[begin:end], hide, done))
                    begin = end
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def written_like(source: Path, part: Path) -> Iterator[Callable[[bytes], Any]]:
    """Writes to `part` with the compression that `source` has; the file is its owner's alone."""
    with source.open("rb") as file:
        magic = file.read(4)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(part, flags, 0o600), "wb") as raw:
        if magic.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                yield packed.write
        elif magic == b"\x28\xb5\x2f\xfd":
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as stream:
                yield cast("BinaryIO", stream).write
        else:
            yield raw.write


def _line(line: bytes, hide: Policy, done: Redacted) -> bytes:
    try:
        fields = {key: bytes(value) for key, value in _DECODE.decode(line).items()}
        event = msgspec.json.decode(fields.get("event", b"null"), type=str)
    except (msgspec.DecodeError, RecursionError, ValueError):
        event = ""
    if event not in EVENTS:
        done.carried += bool(line.strip())
        clean, count = hide.text(line)
        done.redacted += count
        return clean
    done.events += 1
    before = dict(fields)
    count = _event(event, fields, hide)
    done.redacted += count
    if fields == before:
        return line
    if count and event in {"message", "raw", "stderr"}:
        fields["redacted"] = _encode(count + _number(before.get("redacted")))
    end = line[len(line.rstrip(b"\r\n")) :]
    return b"{" + b",".join(_encode(k) + b":" + v for k, v in fields.items()) + b"}" + end


def _event(event: str, fields: _Fields, hide: Policy) -> int:
    """Redact the fields of one event in place; how many strings were replaced."""
    count = 0
    for key, value in list(fields.items()):
        if key in _ENVELOPE:
            continue
        clean, replaced = _HOW.get(key, _json)(value, hide)
        if replaced:
            fields[key] = clean
            count += replaced
    if event == "open":
        fields["redaction"] = _encode(_policies(fields.get("redaction"), hide))
    if event == "raw" and hide.rules:
        # A hash of the whole would let a short secret be guessed.
        fields.pop("sha256", None)
    return count


def _policies(before: bytes | None, hide: Policy) -> str:
    try:
        name = msgspec.json.decode(before or b"null", type=str | None) or "none"
    except msgspec.DecodeError:
        name = "unknown"
    applied = [part for part in name.split("; ") if part != "none"]
    if hide.name != "none" and hide.name not in applied:
        applied.append(hide.name)
    return "; ".join(applied) or "none"


def _number(value: bytes | None) -> int:
    try:
        return msgspec.json.decode(value or b"0", type=int)
    except msgspec.DecodeError:
        return 0


# --- how each field is redacted -----------------------------------------------------------------

_ENVELOPE: Final = words(
    """v event recording seq ts_ns dir scope bytes segment transport recorder redaction redacted
    phase status sse_id sse_event reflowed truncated sha256 lost exit_code signal counts
    closed_by"""
)
"""Fields in which the recorder itself speaks; all others hold what passed, or are unknown."""


def _json(value: bytes, hide: Policy) -> tuple[bytes, int]:
    return hide.json(value)


def _text(value: bytes, hide: Policy) -> tuple[bytes, int]:
    try:
        text = msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return hide.json(value)
    clean, count = hide.text(text.encode())
    return (_encode(clean.decode(errors="replace")), count) if count else (value, 0)


def _b64(value: bytes, hide: Policy) -> tuple[bytes, int]:
    try:
        data = base64.b64decode(msgspec.json.decode(value, type=str), validate=True)
    except (msgspec.DecodeError, binascii.Error):
        return hide.json(value)
    clean, count = hide.text(data)
    return (_encode(base64.b64encode(clean).decode()), count) if count else (value, 0)


def _url(value: bytes, hide: Policy) -> tuple[bytes, int]:
    try:
        clean, count = hide.url(msgspec.json.decode(value, type=str))
    except msgspec.DecodeError:
        return hide.json(value)
    return (_encode(clean), count) if count else (value, 0)


def _command(value: bytes, hide: Policy) -> tuple[bytes, int]:
    try:
        clean, count = hide.argv(msgspec.json.decode(value, type=list[str]))
    except msgspec.DecodeError:
        return hide.json(value)
    return (_encode(clean), count) if count else (value, 0)


def _headers(value: bytes, hide: Policy) -> tuple[bytes, int]:
    """Names stay; what is not on the recorder's allowlist loses its value."""
    try:
        headers = msgspec.json.decode(value, type=dict[str, str])
    except msgspec.DecodeError:
        return hide.json(value)
    total = 0
    for name, text in headers.items():
        if name.lower() in HEADERS:
            clean = hide.headers([(name, text)])[0][name.lower()]
        else:
            clean = "[redacted:header]" if hide.rules else text
        total += clean != text
        headers[name] = clean
    return (_encode(headers), total) if total else (value, 0)


_HOW: Final[Mapping[str, Callable[[bytes, Policy], tuple[bytes, int]]]] = {
    "text": _text,
    "b64": _b64,
    "path": _url,
    "url": _url,
    "command": _command,
    "headers": _headers,
    # What a recorder of old made a label of may have been an argument with a token in it.
    "server": _text,
}
