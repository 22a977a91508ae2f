"""Real clients get the same results from real servers with and without the recorder."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.http_rig import checked_recordings
from tests.record.recorder_process import of, recorder

pytestmark = [pytest.mark.server, pytest.mark.slow]

SERVERS = Path(os.environ.get("MCPTALLY_SERVERS", "/nowhere"))
NPM = SERVERS / "node_modules" / ".bin"
if not (SERVERS / "bin").is_dir():
    pytest.skip(
        "no servers: bash .ci/servers.sh FOLDER, MCPTALLY_SERVERS=FOLDER", allow_module_level=True
    )

WORK = {
    "time": (
        [SERVERS / "bin" / "mcp-server-time", "--local-timezone", "UTC"],
        [
            ("convert_time",
             {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
            ("get_current_time", {"timezone": "Nowhere/Else"}),
            ("no_such_tool", {}),
        ],
    ),
    "everything": (
        [NPM / "mcp-server-everything"],
        [
            ("echo", {"message": "ünï\u2028code \ud83d\ude00"}),
            ("echo", {}),
            ("get-sum", {"a": 1.50, "b": 2e2}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": "Chicago"}),
        ],
    ),
    "filesystem": (
        [NPM / "mcp-server-filesystem", "{folder}"],
        [
            ("list_directory", {"path": "{folder}"}),
            ("read_text_file", {"path": "{folder}/large.txt"}),
            ("read_text_file", {"path": "{folder}/missing.txt"}),
            ("read_text_file", {"path": "/etc/passwd"}),
            ("write_file", {"path": "{folder}/out.txt", "content": "x\r\ny"}),
        ],
    ),
}  # fmt: skip

PYTHON_CLIENT = """
import anyio, json, sys
from mcp import Client, StdioServerParameters
work = json.load(open(sys.argv[1]))
async def main():
    server = StdioServerParameters(
        command=work["command"][0], args=work["command"][1:], env=work["env"])
    out = []
    async with Client(server, mode=sys.argv[2]) as client:
        out.append([client.protocol_version, str(client.server_info)])
        out.append((await client.list_tools()).model_dump(mode="json"))
        for tool, arguments in work["calls"]:
            try:
                out.append((await client.call_tool(tool, arguments)).model_dump(mode="json"))
            except Exception as error:
                out.append([type(error).__name__, str(error)])
    print(json.dumps(out))
anyio.run(main)
"""


def needs(*paths):
    for path in paths:
        if not Path(path).exists():
            pytest.skip(f"{Path(path).name} is not in MCPTALLY_SERVERS ({SERVERS})")


def job(tmp_path, server, *, behind):
    """Write the instructions for a client: command, environment and calls, in a fresh folder."""
    command, calls = WORK[server]
    needs(command[0])
    work = tmp_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "large.txt").write_text("line of text é\n" * 100_000)
    filled = json.loads(json.dumps([list(map(str, command)), calls]).replace("{folder}", str(work)))
    if behind:
        filled[0] = [*recorder(tmp_path / "traces", "--redact", "none"), *filled[0]]
    env = {"PATH": os.environ["PATH"], "HOME": str(work)}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"command": filled[0], "calls": filled[1], "env": env}))
    return path


def answer(command, **kwargs):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, timeout=240, check=False, **kwargs
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def python_sdk(tmp_path, path, mode):
    script = tmp_path / "client.py"
    script.write_text(PYTHON_CLIENT)
    return answer([sys.executable, script, path, mode])


def typescript_sdk(tmp_path, path):
    needs(SERVERS / "node_modules" / "@modelcontextprotocol" / "sdk")
    if not (tmp_path / "node_modules").exists():
        (tmp_path / "node_modules").symlink_to(SERVERS.resolve() / "node_modules")
    script = shutil.copy(Path(__file__).with_name("typescript_client.mjs"), tmp_path)
    return answer(["node", script, path])


def without_times(value):
    text = json.dumps(value)
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)


@pytest.mark.parametrize(
    ("client", "options", "server"),
    [
        (python_sdk, ["auto"], "filesystem"),
        (python_sdk, ["legacy"], "time"),
        (typescript_sdk, [], "everything"),
    ],
)
def test_a_client_gets_the_same_results_through_the_recorder(client, options, server, tmp_path):
    direct = client(tmp_path, job(tmp_path, server, behind=False), *options)
    through = client(tmp_path, job(tmp_path, server, behind=True), *options)
    assert without_times(direct) == without_times(through)
    asked = [e for own in checked_recordings(tmp_path / "traces") for e in of(own, "message")]
    calls = [event for event in asked if event["msg"].get("method") == "tools/call"]
    assert len(calls) == len(WORK[server][1])
