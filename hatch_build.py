"""Builds `rules/compiled.json`: the package's TOML files as JSON, which is read much faster.

Hatchling runs this hook for wheels and for editable installs. After a change of a rule file, the
program reads that file itself until the package is installed again.
"""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src", "mcptally")


def write_compiled(root: Path) -> Path:
    """Write the file in the checkout at `root` and return its path."""
    package = root / PACKAGE
    files = {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*.toml"))
    }
    content = {
        name: {
            "sha256": hashlib.sha256(data).hexdigest(),
            "table": tomllib.loads(data.decode()),
        }
        for name, data in files.items()
    }
    written = package / "rules" / "compiled.json"
    written.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return written


class CompileRules(BuildHookInterface):
    """Writes the file before the package is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the file and add it to the build, although git ignores it."""
        write_compiled(Path(self.root))
        build_data["artifacts"].append(f"/{PACKAGE.as_posix()}/rules/compiled.json")
