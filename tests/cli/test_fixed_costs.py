"""Counts what a command loads and executes regardless of the size of its input.

`python -m tests.benchmarks ratios` measures the CPU time; these counts do not vary between runs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import mcptally as mt
from mcptally.analytics import duckdb_file
from tests import corpus

PACKAGES = (
    *("polars", "pyarrow", "pyarrow.compute", "numpy", "duckdb", "msgspec", "jsonschema_rs"),
    *("jsonschema", "scipy", "rich.console", "rich.table", "tomllib", "asyncio", "pydantic"),
    *("pandas", "numpy.ma", "pyarrow.parquet", "ssl", "multiprocessing"),
)

COUNTS = """
import contextlib, io, json, os, sys, traceback

def counted(arguments):
    "What a command loads and executes, in a process of its own."
    output, inlet = os.pipe()
    if pid := os.fork():
        os.close(inlet)
        with os.fdopen(output) as found:
            text = found.read()
        os.waitpid(pid, 0)
        return json.loads(text)
    statements = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from mcptally.cli import main
        if arguments[0] == "query":
            import duckdb
            execute = duckdb.DuckDBPyConnection.execute
            def counting(self, *given, **named):
                nonlocal statements
                statements += 1
                return execute(self, *given, **named)
            duckdb.DuckDBPyConnection.execute = counting
        sys.argv = ["mcptally", *arguments]
        try:
            main()
        except SystemExit as end:
            if end.code:
                os._exit(1)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    loaded = [name for name in PACKAGES if sys.modules.get(name)]
    own = sum(name.startswith("mcptally") for name in sys.modules)
    os.write(inlet, json.dumps([loaded, own, statements]).encode())
    os._exit(0)

PACKAGES, commands = json.loads(sys.argv[1])
print(json.dumps([counted(command) for command in commands]))
"""


class Most(NamedTuple):
    """The limits for what a command loads and executes."""

    packages: set[str]
    """Exactly these of `PACKAGES`."""
    modules: int
    """At most so many modules of mcptally."""
    statements: int = 0
    """At most so many DuckDB statements."""


QUERY = {"pyarrow", "numpy", "duckdb", "msgspec"}
SCORE = {"polars", "pyarrow", "numpy", "msgspec", "jsonschema_rs"} | {
    *("pyarrow.compute", "pyarrow.parquet", "ssl"),
}
COMMANDS = {
    "score --help": Most(set(), 13),
    "rules": Most({"msgspec", "tomllib"}, 13),
    "query STORE select_1": Most(QUERY, 86, statements=18),
    "query STORE timeline": Most(QUERY, 86, statements=29),
    "report STORE -o PAGE": Most(QUERY | {"polars", "pyarrow.compute", "numpy.ma"}, 131),
    # With nothing new:
    "score ARCHIVE -o STORE": Most(SCORE, 200),
    "query STORE tool_scores": Most(QUERY, 86, statements=29),
    "score ARCHIVE -o NEW": Most(SCORE | {"numpy.ma"}, 200),
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_command_loads_and_executes_no_more_than_it_needs(
    sample_store: mt.Store, tmp_path: Path
) -> None:
    duckdb_file.refresh(sample_store.path)
    mt.open_store(sample_store.path, masked=True).ask("timeline")  # writes the masked copies
    words = {
        "STORE": str(sample_store.path),
        "ARCHIVE": str(corpus.SAMPLES),
        "NEW": str(tmp_path / "store"),
        "PAGE": str(tmp_path / "page.html"),
        "select_1": "select 1",
    }
    given = [[words.get(word, word) for word in command.split()] for command in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", COUNTS, json.dumps([PACKAGES, given])],
        capture_output=True,
        text=True,
        check=True,
    )
    for (command, most), found in zip(COMMANDS.items(), json.loads(done.stdout), strict=True):
        packages, modules, statements = found
        assert set(packages) == most.packages, command
        assert modules <= most.modules, command
        assert statements <= most.statements, command
