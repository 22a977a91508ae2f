"""The recorder is light: what a client waits for must not load what only analysis needs."""

import subprocess
import sys

HEAVY = {
    "duckdb", "jsonschema", "jsonschema_rs", "mcp", "numpy", "pandas", "polars", "pyarrow",
    "pydantic", "rich", "scipy",
}  # fmt: skip

LAZY = {"asyncio", "hashlib", "zstandard", "pathlib", "socket", "subprocess"}
"""Not forbidden, but each costs start-up that most recordings need not pay."""


def test_recording_loads_nothing_columnar_and_little_else(tmp_path):
    source = (
        "import sys, os\n"
        "exit_ = os._exit\n"
        "def tell(code):\n"
        "    sys.stderr.write(' '.join(sorted({m.partition('.')[0] for m in sys.modules})))\n"
        "    sys.stderr.flush(); exit_(code)\n"
        "os._exit = tell\n"
        f"sys.argv[1:] = ['record', '--out', {str(tmp_path)!r}, '--', 'cat']\n"
        "from mcptally.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", source], input=b'{"id":1}\n', capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b'{"id":1}\n')
    # The guardian's process says its own last words first.
    loaded = set(done.stderr.decode().split())
    assert "msgspec" in loaded
    assert not loaded & HEAVY
    assert not loaded & LAZY
