"""Builds a `compiled.json` in each folder with TOML files: the same as JSON, read much faster.

Hatchling runs this hook for wheels and for editable installs. After a change of a rule file, the
program reads that file itself until the package is installed again.
"""

import binascii
import json
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src", "mcptally")


def write_compiled(root: Path) -> list[Path]:
    """Write the files in the checkout at `root` and return their paths."""
    package = root / PACKAGE
    folders: dict[Path, dict[str, dict[str, Any]]] = {}
    for path in sorted(package.rglob("*.toml")):
        data = path.read_bytes()
        folders.setdefault(path.parent, {})[path.name] = {
            "crc32": binascii.crc32(data),
            "table": tomllib.loads(data.decode()),
        }
    for folder, files in folders.items():
        text = json.dumps(files, ensure_ascii=False)
        (folder / "compiled.json").write_text(text, encoding="utf-8")
    return [folder / "compiled.json" for folder in folders]


class CompileRules(BuildHookInterface):
    """Writes the files before the package is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the files and add them to the build, although git ignores them."""
        write_compiled(Path(self.root))
        build_data["artifacts"].append(f"/{PACKAGE.as_posix()}/*/compiled.json")
