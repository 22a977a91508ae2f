"""The mutation check breaks the code in important places; a test must fail each time.

python -m tests.mutations            breaks every place of mutations.toml, one after the other
python -m tests.mutations NAME... only those whose names begin with NAME

Each is broken in a copy of the checkout; the checkout itself is never touched. A mutation is caught
if a test fails with an assertion error, or with the `error` of its row. A mutation that cannot be
imported, or never ends, proves nothing.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = Path("src", "mcptally")
COPIED: Final = (
    "src",
    "tests",
    "docs",
    "sample_traces",
    "notebooks",
    "pyproject.toml",
    "README.md",
)
PATIENCE: Final = 1200
"""Time limit in seconds for the tests of one mutation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutation:
    """One way to break the code, and the tests that must detect it."""

    name: str
    file: str
    """Below `src/mcptally`."""
    old: str
    """Occurs exactly once."""
    new: str
    tests: tuple[str, ...]
    """pytest's names of files or tests, below `tests`."""
    error: str = "AssertionError"
    """What the report of a failed test may contain in place of an assertion: an exception."""

    def broken(self, text: str) -> str:
        """Return the text of the file with the mutation.

        Raises:
            ValueError: the old text does not occur exactly once.
        """
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: the old text is in {self.file} {times} times, not once")
        return text.replace(self.old, self.new)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of the tests for a mutation."""

    mutation: str
    caught_by: str | None
    """The first test that failed by an assertion or with the expected exception."""
    seconds: float
    words: str = ""
    """Why it does not count, where something else than an assertion failed."""


def mutations() -> tuple[Mutation, ...]:
    """The rows of the table."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(Mutation(**{**row, "tests": tuple(row["tests"])}) for row in rows["mutation"])


class Copy:
    """A copy of the checkout in which mutations are made."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.root.mkdir()
        for name in COPIED:
            source, target = CHECKOUT / name, self.root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copyfile(source, target)
        self.python = self._environment(folder / "venv")
        # Bytecode is identified by the hash of its source: by time and size, a mutation of the same
        # length in the same second would not be noticed.
        mode = ("--invalidation-mode", "checked-hash")
        self._python("-m", "compileall", "-q", *mode, str(self.root / "src"))
        found = self._python("-c", "import mcptally; print(mcptally.__file__)")
        if not Path(found.stdout.strip()).is_relative_to(self.root):
            raise SystemExit(f"the tests would import {found.stdout.strip()}, not the copy")

    def _environment(self, folder: Path) -> str:
        """A Python environment with the copy and this Python's packages, also with option -I."""
        venv.create(folder, symlinks=True)
        base = {"base": str(folder), "platbase": str(folder)}
        packages = [path for path in sys.path if Path(path).name == "site-packages"]
        paths = [str(self.root / "src"), *packages]
        site = Path(sysconfig.get_path("purelib", "venv", base))
        (site / "copy.pth").write_text("\n".join(paths), encoding="utf-8")
        return str(Path(sysconfig.get_path("scripts", "venv", base)) / "python")

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *words],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def test(self, name: str, tests: tuple[str, ...], error: str = "AssertionError") -> Outcome:
        """Run tests until one fails."""
        command = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rf")
        began = time.monotonic()
        try:
            done = self._python(*command, *(f"tests/{test}" for test in tests))
        except subprocess.TimeoutExpired:
            return Outcome(name, None, time.monotonic() - began, "the tests did not end")
        took = time.monotonic() - began
        failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
        if failed and any(each in done.stdout for each in ("AssertionError", "DID NOT", error)):
            return Outcome(name, failed[1], took)
        words = f"no assertion failed: {done.stdout[-1500:]}" if done.returncode else ""
        return Outcome(name, None, took, words)

    def mutated(self, mutation: Mutation) -> Outcome:
        """Run the tests of a mutation and return the result; the copy is restored afterwards."""
        path = self.root / PACKAGE / mutation.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutation.broken(text), encoding="utf-8")
        try:
            return self.test(mutation.name, mutation.tests, mutation.error)
        finally:
            path.write_text(text, encoding="utf-8")


def main(names: list[str]) -> int:
    """Break the code and print which tests failed; exit with 1 if a mutation was not caught."""
    chosen = [row for row in mutations() if not names or row.name.startswith(tuple(names))]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Copy(Path(folder))
        every = tuple(dict.fromkeys(test for row in chosen for test in row.tests))
        whole = copy.test("nothing", every)
        if whole.caught_by or whole.words:
            print(f"unbroken code fails its tests: {whole.caught_by or whole.words}")
            return 1
        print(f"{'mutation':<36} {'s':>4}  caught by", flush=True)
        for row in chosen:
            told = copy.mutated(row)
            words = " ".join((told.caught_by or f"NOT CAUGHT {told.words}").split())
            print(f"{row.name:<36} {told.seconds:4.0f}  {words[:120]}", flush=True)
            if told.caught_by is None:
                survivors.append(row.name)
    caught = len(chosen) - len(survivors)
    print(f"{caught} of {len(chosen)} mutations caught", *survivors)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
