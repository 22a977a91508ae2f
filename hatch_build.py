"""Builds files that are read much faster than they are computed.

These are a `compiled.json` in each folder with TOML files, with their content as JSON, and one in
`statistics` with quantiles that SciPy computes.

Hatchling runs this hook for wheels and for editable installs. After a change of a rule file, the
program reads that file itself until the package is installed again.
"""

import binascii
import json
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from scipy.special import ndtri, stdtrit

PACKAGE = Path("src", "mcptally")
MAX_FREEDOM = 1_000
"""Number of quantiles of Student's t."""


def write_compiled(root: Path) -> list[Path]:
    """Write the files in the checkout at `root`; return the paths of those about TOML files."""
    write_quantiles(root / PACKAGE / "statistics")
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


def write_quantiles(folder: Path) -> None:
    """Write the 97.5 % quantiles of Student's t, after that of the normal distribution."""
    folder.mkdir(exist_ok=True)
    quantiles = [ndtri(0.975), *(stdtrit(df, 0.975) for df in range(1, MAX_FREEDOM + 1))]
    text = json.dumps({"t_quantiles": list(map(float, quantiles))})
    (folder / "compiled.json").write_text(text, encoding="utf-8")


class CompileFiles(BuildHookInterface):
    """Writes the files before the package is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the files and add them to the build, although git ignores them."""
        write_compiled(Path(self.root))
        build_data["artifacts"].append(f"/{PACKAGE.as_posix()}/*/compiled.json")
