"""The recorder starts without loading modules that only the analysis needs."""

import subprocess
import sys

HEAVY = {
    "duckdb", "jsonschema", "jsonschema_rs", "mcp", "numpy", "pandas", "polars", "pyarrow",
    "pydantic", "rich", "scipy", "httpx", "anyio", "uvicorn", "starlette",
}  # fmt: skip

LAZY = {"asyncio", "hashlib", "zstandard", "pathlib", "socket", "subprocess"}
"""Modules that the recorder imports only when needed, because each adds to its start-up time."""


def test_recording_loads_no_analysis_modules_and_no_lazy_ones(tmp_path):
    source = (
        "import sys, os\n"
        "exit_ = os._exit\n"
        "def print_modules(code):\n"
        "    sys.stderr.write(' '.join(sorted({m.partition('.')[0] for m in sys.modules})))\n"
        "    sys.stderr.flush(); exit_(code)\n"
        "os._exit = print_modules\n"
        f"sys.argv[1:] = ['record', '--out', {str(tmp_path)!r}, '--', 'cat']\n"
        "from mcptally.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", source], input=b'{"id":1}\n', capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b'{"id":1}\n')
    # The supervisor process prints its modules too, before the recorder.
    loaded = set(done.stderr.decode().split())
    assert "msgspec" in loaded
    assert not loaded & HEAVY
    assert not loaded & LAZY


def test_recording_http_loads_no_analysis_modules():
    source = (
        "import sys\n"
        "from mcptally.record.http import server, upstream\n"
        "upstream.UpstreamServer('http://127.0.0.1/')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-I", "-c", source], text=True) == "[]\n"
