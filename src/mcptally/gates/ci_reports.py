"""Writes the results of gates as JUnit XML, SARIF 2.1.0 or plain text."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

import mcptally
from mcptally.gates.limits import Gate, Result
from mcptally.output.whole_file import whole_file
from mcptally.plural import count
from mcptally.redaction.display import clean_line, mask_text

_MAX_FAILURES: Final = 20
"""Maximum number of failures that plain text lists; further failures are only counted."""


def lines(results: Sequence[Result]) -> list[str]:
    """Format results as lines of text: failed gates, the number of undecided gates, and totals."""
    texts = [
        f"FAILED {_display_text(result.subject)}: {_display_text(result.message)}"
        for result in results
        if result.state == "failed"
    ]
    undecided = [result for result in results if result.state == "undecided"]
    if undecided:
        texts.append(
            f"{count(len(undecided))} undecided "
            "(fewer than three sessions, or the interval contains the limit), "
            f"first: {_display_text(undecided[0].subject)}: {_display_text(undecided[0].message)}"
        )
    failures = sum(result.state == "failed" for result in results)
    if failures > _MAX_FAILURES:
        texts[_MAX_FAILURES:failures] = [f"… and {count(failures - _MAX_FAILURES)} more failed"]
    passed = len(results) - failures - len(undecided)
    texts.append(
        f"gates: {count(failures)} failed, {count(len(undecided))} undecided, "
        f"{count(passed)} passed"
    )
    return texts


def write_reports(
    results: Sequence[Result], *, junit: Path | None = None, sarif: Path | None = None
) -> None:
    """Write a report in each format for which a path is given."""
    if junit is not None:
        _write(junit, as_junit(results))
    if sarif is not None:
        _write(sarif, as_sarif(results))


def as_junit(results: Sequence[Result]) -> bytes:
    """Format results as JUnit XML, with one suite per gate and one case per tool.

    Undecided results count as skipped.
    """
    root = ET.Element("testsuites", name="mcptally")
    for gate, found in _by_gate(results):
        states = [result.state for result in found]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_display_text(_title(gate)),
            tests=str(len(found)),
            failures=str(states.count("failed")),
            skipped=str(states.count("undecided")),
            errors="0",
        )
        for result in found:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_display_text(result.server or "store"),
                name=_display_text(result.tool or "(all of its tools)"),
            )
            if result.state != "passed":
                kind = "failure" if result.state == "failed" else "skipped"
                ET.SubElement(case, kind, message=_display_text(result.message))
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def as_sarif(results: Sequence[Result]) -> bytes:
    """Format results as SARIF 2.1.0, with one rule per gate and one result per failure.

    Paths of transcripts are relative to the repository, as code hosts expect. The repository is the
    nearest folder with a `.git`, from the working folder upwards, or else the working folder
    itself.
    """
    root = _root()
    rules = [
        {
            "id": _display_text(_title(gate)),
            "shortDescription": {"text": _display_text(f"fails on {gate.text}")},
            "defaultConfiguration": {"level": "error"},
        }
        for gate, _ in _by_gate(results)
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "mcptally",
                        "semanticVersion": mcptally.__version__,
                        "rules": rules,
                    }
                },
                "results": [_sarif_result(r, root) for r in results if r.state == "failed"],
            }
        ],
    }
    return (json.dumps(log, indent=1, ensure_ascii=False) + "\n").encode()


def _sarif_result(result: Result, root: Path) -> dict[str, Any]:
    location: dict[str, Any] = {
        "logicalLocations": [
            {"fullyQualifiedName": _display_text(result.subject), "kind": "function"}
        ]
    }
    if result.file:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(result.file, root),
            "region": {"startLine": result.line or 1},
        }
    return {
        "ruleId": _display_text(_title(result.gate)),
        "level": "error",
        "message": {"text": _display_text(f"{result.subject}: {result.message}")},
        "locations": [location],
    }


_ROOT: Final = "%SRCROOT%"
"""Base of relative URIs, which code hosts resolve to the repository."""


def _root() -> Path:
    """Return the root of the repository around the working folder, or else the working folder."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _artifact(file: str, root: Path) -> dict[str, str]:
    """Return the SARIF artifactLocation of a transcript, relative if the file is under `root`."""
    if "://" in file:
        return {"uri": quote(mask_text(file), safe="/:@")}
    path = Path(os.path.abspath(file))  # noqa: PTH100  (`resolve` would follow links)
    if path.is_relative_to(root):
        relative = path.relative_to(root).as_posix()
        # Prefix `./`, because a colon in the first segment would be parsed as the end of a URI
        # scheme.
        dot = "./" if ":" in relative.partition("/")[0] else ""
        return {"uri": dot + quote(mask_text(relative), safe="/:@"), "uriBaseId": _ROOT}
    return {"uri": Path(mask_text(str(path))).as_uri()}


def _title(gate: Gate) -> str:
    where = "" if (gate.server, gate.tool) == ("*", "*") else f" [{gate.server}/{gate.tool}]"
    return f"{gate.text}{where}"


def _by_gate(results: Sequence[Result]) -> list[tuple[Gate, list[Result]]]:
    found: dict[Gate, list[Result]] = {}
    for result in results:
        found.setdefault(result.gate, []).append(result)
    return list(found.items())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file(path, lambda file: file.write(data))


def _display_text(text: str) -> str:
    """Put recorded text on one line and mask its secrets, for use in a report."""
    return clean_line(mask_text(text))
