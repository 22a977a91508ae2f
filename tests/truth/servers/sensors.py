"""Sensor logs: standalone FastMCP, asynchronous tools; details of exceptions masked on request."""

import asyncio
import base64
import binascii
import bz2
import collections
import contextlib
import ctypes
import dbm.dumb
import hashlib
import heapq
import itertools
import json
import lzma
import math
import operator
import os
import shelve
import socket
import sqlite3
import statistics
import struct
import sys
import tarfile
import uuid
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import redis
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from native import also, calls, run
from pydantic import BaseModel, Field

mcp = FastMCP("sensors", mask_error_details="masked" in sys.argv)
ROOT = Path.home() / "measurements"


def prepare():
    ROOT.mkdir(exist_ok=True)
    (ROOT / "roof.jsonl").write_text(
        '{"t": 1, "value": 20.5}\n{"t": 2, "value": 21.0}\n{"t": 3, "val\n'
    )
    (ROOT / "cellar.jsonl").write_text('{"t": 1, "value": 12.0}\n{"t": 2, "value": 12.5}\n')
    (ROOT / "calibration.lzma").write_bytes(b"\xfd7zXZ\x00 nothing")
    (ROOT / "old.bz2").write_bytes(bz2.compress(b"1;2;3\n" * 500)[:30])
    (ROOT / "waveform.wav").write_bytes(b"RIFF\x10\x00\x00\x00AVI LIST")
    (ROOT / "backup.tar").write_bytes(b"\x00" * 100)
    (ROOT / "firmware.b64").write_text("QUJD*REVG=R")
    (ROOT / "thresholds.json").write_text("")
    (ROOT / "full.log").unlink(missing_ok=True)
    (ROOT / "full.log").symlink_to("/dev/full")
    (ROOT / "series.db").unlink(missing_ok=True)
    (ROOT / "alarms.d").mkdir(exist_ok=True)
    with sqlite3.connect(ROOT / "series.db") as db:
        db.execute("CREATE TABLE readings (sensor TEXT, t INTEGER, value REAL)")
        db.executemany(
            "INSERT INTO readings VALUES (?, ?, ?)", [("roof", 1, 20.5), ("cellar", 1, None)]
        )


prepare()

SENSORS: dict[str, dict[str, Any]] = {
    "roof": {"unit": "°C", "gain": 1.02, "window": 3, "tags": ["outside", "north"], "parent": None},
    "cellar": {"unit": "°C", "gain": 0.0, "window": 0, "tags": [], "parent": "house"},
    "yard": {"unit": None, "gain": "1,1", "window": -1, "tags": None, "parent": "roof"},
    "house": {"unit": "kWh", "gain": 1.0, "window": 5, "tags": ["meter"], "parent": "cellar"},
}


class SensorNotFoundError(LookupError):
    """No sensor has this name."""


def sensor(name: str) -> dict[str, Any]:
    try:
        return SENSORS[name]
    except KeyError:
        raise SensorNotFoundError(f"sensor '{name}' not found") from None


@calls(
    works(name="roof"),
    works(name="cellar"),
    fails("not_found", name="attic"),
    fails("validation", name=["roof"]),
    fails("validation", sensor="roof"),
)
@mcp.tool
async def describe_sensor(name: str, ctx: Context) -> dict:
    """Properties of a sensor."""
    await ctx.info(f"describing {name}")
    return sensor(name)


@calls(works(name="roof"), fails("crash", name="yard"), works(name="house"))
@mcp.tool
async def tags(name: str) -> str:
    """Tags of a sensor."""
    return ", ".join(sensor(name)["tags"])


@calls(
    works(name="roof", value=20.0),
    fails("crash", name="cellar", value=20.0),
    fails("crash", name="yard", value=20.0),
    fails("validation", name="roof", value="warm"),
)
@mcp.tool
def normalise(name: str, value: float) -> float:
    """Value divided by the sensor's gain."""
    return value / sensor(name)["gain"]


@calls(works(name="roof"), fails("crash", name="cellar"), fails("crash", name="yard"))
@mcp.tool
def sliding_mean(name: str) -> list[float]:
    """Means over the sensor's window."""
    values = collections.deque([1.0, 2.0, 3.0], maxlen=sensor(name)["window"])
    return [statistics.mean(values)]


@calls(works(name="roof"), fails("crash", name="house"))
@mcp.tool
def location_path(name: str) -> str:
    """Path from the root to the sensor."""

    def up(each: str) -> list[str]:
        parent = SENSORS[each]["parent"]
        return [each] if parent is None else [*up(parent), each]

    if name == "house":
        SENSORS["cellar"]["parent"] = "house"
    return "/".join(up(name))


@calls(works(name="cellar"), fails("misconfig", name="roof"), fails("misconfig", name="yard"))
@mcp.tool
async def readings(name: str) -> list:
    """Readings in a sensor's log."""
    sensor(name)
    with (ROOT / f"{name}.jsonl").open() as lines:
        return [json.loads(line)["value"] for line in lines]


@calls(works(name="roof"), fails("crash", name="cellar"))
@mcp.tool
def last_value(name: str) -> str:
    """Last value of a sensor."""
    with contextlib.closing(sqlite3.connect(ROOT / "series.db")) as db:
        (value,) = db.execute(
            "SELECT value FROM readings WHERE sensor = ? ORDER BY t DESC", (name,)
        ).fetchone()
    return f"{value:.1f}"


@calls(fails("misconfig", name="roof"), fails("misconfig", name="cellar"))
@mcp.tool
def hourly(name: str) -> list:
    """Hourly means."""
    with contextlib.closing(sqlite3.connect(ROOT / "series.db")) as db:
        return db.execute("SELECT hour, mean FROM rollup_1h WHERE sensor = ?", (name,)).fetchall()


@calls(fails("misconfig", since=0))
@mcp.tool
def events(since: int) -> list:
    """Events since a time."""
    db = sqlite3.connect(f"file:{ROOT}/events/events.db?mode=ro", uri=True)
    return db.execute("SELECT * FROM events WHERE t > ?", (since,)).fetchall()


@calls(fails("misconfig", name="roof", value=1.0))
@mcp.tool
def store_reading(name: str, value: float) -> str:
    """Store a reading."""
    with contextlib.closing(sqlite3.connect(f"file:{ROOT}/series.db?mode=ro", uri=True)) as db:
        db.execute("INSERT INTO readings VALUES (?, 9, ?)", (name, value))
    return "stored"


@calls(fails("misconfig", name="roof"))
@mcp.tool
def calibration_curve(name: str) -> str:
    """Calibration curve of a sensor."""
    return lzma.decompress((ROOT / "calibration.lzma").read_bytes()).decode()


@calls(fails("misconfig", year=2024))
@mcp.tool
def old_readings(year: int) -> str:
    """Readings of an earlier year."""
    return bz2.open(ROOT / "old.bz2", "rt").read()


@calls(fails("misconfig", seconds=1.0))
@mcp.tool
def vibration(seconds: Annotated[float, Field(gt=0)]) -> int:
    """Frames of the vibration recording."""
    with wave.open(str(ROOT / "waveform.wav")) as recording:
        return recording.getnframes()


@calls(fails("misconfig", name="2026-11"))
@mcp.tool
def restore_backup(name: str) -> list:
    """Files in the backup."""
    try:
        with tarfile.open(ROOT / "backup.tar") as archive:
            return archive.getnames()
    except tarfile.TarError as exc:
        raise RuntimeError(
            f"backup is corrupt, restore aborted ({type(exc).__name__}: {exc})"
        ) from exc


@calls(fails("misconfig", device="gw1"))
@mcp.tool
def firmware_checksum(device: str) -> str:
    """Checksum of the firmware image."""
    return hashlib.sha256(
        base64.b64decode((ROOT / "firmware.b64").read_text(), validate=True)
    ).hexdigest()


@calls(fails("misconfig", name="roof"), fails("misconfig", name="cellar"))
@mcp.tool
def threshold(name: str) -> float:
    """Alarm threshold of a sensor."""
    return json.load((ROOT / "thresholds.json").open())[name]


@calls(fails("misconfig", name="roof"))
@mcp.tool
def alarms(name: str) -> str:
    """Alarms of a sensor."""
    return (ROOT / "alarms.d").read_text()


@calls(works(text=""), fails("internal", text="x" * 20), fails("internal", text="maintenance done"))
@mcp.tool
def append_log(text: str) -> str:
    """Append to the log."""
    if text:
        with (ROOT / "full.log").open("a") as log:
            log.write(text)
    return "logged"


@calls(fails("misconfig", device="gw1"))
@mcp.tool
async def flash(device: str) -> str:
    """Flash a device."""
    process = await asyncio.create_subprocess_exec(
        "esptool.py", "--port", "/dev/ttyUSB0", "chip_id"
    )
    return str(await process.wait())


@calls(fails("misconfig", device="gw1"), fails("misconfig", device="gw2"))
@mcp.tool
async def modbus(device: str) -> str:
    """Read a register over Modbus."""
    process = await asyncio.create_subprocess_shell("mbpoll -1 -r 40001", stdout=-1, stderr=-1)
    _, err = await process.communicate()
    if process.returncode:
        raise ToolError(f"mbpoll failed with code {process.returncode}: {err.decode().strip()}")
    return "ok"


@calls(fails("misconfig", name="roof"))
@mcp.tool
def spectrum(name: str) -> list:
    """Spectrum of a series."""
    library = ctypes.CDLL("libfftw3.so.3")
    return [library.fftw_version]


@calls(fails("misconfig", kind="line"))
@mcp.tool
def plot(kind: str) -> str:
    """Plot of a series."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as exc:
        raise ToolError("Plotting needs matplotlib. Run: pip install sensors-mcp[plot]") from exc
    return plt.__name__


@calls(fails("misconfig", topic="home/roof"))
@mcp.tool
def publish(topic: str) -> str:
    """Publish to the broker."""
    user, password = os.environ["MQTT_LOGIN"].split(":")
    return user


@calls(works(name="roof"), fails("crash", name="cellar"))
@mcp.tool
def log_scale(name: str) -> float:
    """Logarithm of the gain."""
    return math.log(sensor(name)["gain"])


@calls(works(minutes=1), fails("crash", minutes=60))
@mcp.tool
def encode_minutes(minutes: int) -> str:
    """Time as the device counts it."""
    return struct.pack(">B", minutes * 5).hex()


@calls(works(n=3), fails("crash", n=400))
@mcp.tool
def projected(n: int) -> float:
    """Growth after n steps."""
    return 10.0**n


class Reading(BaseModel):
    sensor: str
    value: float
    at: int


@calls(works(name="roof"), fails("crash", name="yard"))
@mcp.tool(
    output_schema={
        "type": "object",
        "properties": {"value": {"type": "number"}, "at": {"type": "integer"}},
        "required": ["value", "at"],
    }
)
def latest(name: str) -> dict:
    """Latest reading."""
    return Reading(sensor=name, value=20.5 if name == "roof" else None, at=3).model_dump()


@calls(works(first="roof", second="house"), fails("crash", first="roof", second="yard"))
@mcp.tool
def same_unit(first: str, second: str) -> bool:
    """Whether two sensors have the same unit."""
    return SENSORS[first]["unit"].casefold() == SENSORS[second]["unit"].casefold()


@calls(fails("crash", hours=1), fails("crash", hours=2))
@mcp.tool
async def forecast(hours: int) -> float:
    """Forecast."""
    values = [collapse() for collapse in (lambda: 1.0, lambda: None)]
    assert all(values)
    return values[0]


@calls(works(step=1), fails("crash", step=0))
@mcp.tool
def downsample(step: int) -> list:
    """Every n-th reading."""
    if step:
        return list(range(0, 9, step))
    iterator = iter(())
    return [next(iterator)]


@calls(fails("crash", name="roof"))
@mcp.tool
async def anomaly_score(name: str) -> float:
    """Anomaly score of the last reading."""
    raise Exception


@calls(fails("internal", name="roof"), works(name="cellar"))
@mcp.tool
async def compact(name: str) -> str:
    """Compact a log."""
    done = asyncio.Event()
    if name == "cellar":
        done.set()
    try:
        async with asyncio.timeout(0.2):
            await done.wait()
    except TimeoutError:
        raise RuntimeError("compaction worker never signalled completion (waited 0.2s)") from None
    return "compacted"


@calls(
    works(place="Graz"),
    fails("upstream", place="Wien"),
    fails("upstream", place="Linz"),
    fails("quota", place="Wels"),
    fails("timeout", place="Steyr"),
)
@mcp.tool
async def outside_temperature(place: str) -> float:
    """Temperature that the weather service reports."""
    path = {"Graz": "200", "Wien": "503", "Linz": "empty", "Wels": "429", "Steyr": "slow"}[place]
    async with httpx.AsyncClient(base_url=UPSTREAM, timeout=0.4) as client:
        reply = await client.get(f"/{path}")
        reply.raise_for_status()
        reply.json()
        return 3.5


@calls(fails("network", device="gw1"), fails("network", device="gw2"))
@mcp.tool
async def ping_device(device: str) -> str:
    """Reach a device."""
    reader, writer = await asyncio.open_connection("127.0.0.1", CLOSED_PORT)
    return device


@calls(fails("network", device="gw9"))
@mcp.tool
def resolve_device(device: str) -> str:
    """Address of a device."""
    return socket.gethostbyname(f"{device}.sensors.invalid")


@calls(fails("down", key="roof"), fails("down", key="yard"))
@mcp.tool
def cached(key: str) -> str:
    """Value in the cache."""
    return redis.Redis(port=CLOSED_PORT).get(key)


@calls(fails("network", dataset="ttn"))
@mcp.tool
async def download(dataset: str) -> str:
    """Download a data set."""
    async with httpx.AsyncClient() as client:
        return (await client.get(UPSTREAM.replace("http:", "https:") + "/data")).text


@calls(fails("upstream", region="south"), fails("network", region="north"))
@mcp.tool
async def grid_load(region: str) -> str:
    """Load of the power grid."""
    try:
        async with httpx.AsyncClient(timeout=1) as client:
            reply = await client.get(f"{UPSTREAM}/{'500' if region == 'south' else 'reset'}")
    except httpx.TransportError as exc:
        raise ToolError(f"grid operator unreachable: {exc!r}") from exc
    raise ToolError(f"Unexpected response from grid operator (status={reply.status_code})")


@calls(fails("timeout", device="gw1"))
@mcp.tool
async def wait_for_device(device: str) -> str:
    """Wait until a device answers."""
    with contextlib.suppress(ValueError):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            with socket.create_connection(listener.getsockname(), timeout=0.2) as device_socket:
                device_socket.recv(1)
    return device


@calls(fails("auth", user="ops"))
@mcp.tool
async def cloud_login(user: str) -> str:
    """Log in to the cloud."""
    async with httpx.AsyncClient() as client:
        (await client.get(f"{UPSTREAM}/401")).raise_for_status()
    return "in"


@calls(
    works(name="roof", interval=60),
    fails("validation", name="roof", interval=0),
    fails("validation", name="roof", interval=90000),
    fails("state", name="yard", interval=60),
    fails("not_found", name="lawn", interval=60),
    fails("permission", name="house", interval=60),
)
@mcp.tool
def set_interval(name: str, interval: Annotated[int, Field(ge=1, le=86400)]) -> str:
    """Set the interval of measurements."""
    if name == "yard":
        raise ToolError("yard is offline; bring it online before changing its interval")
    if name == "house":
        raise PermissionError("meter 'house' is calibrated by the utility and must not be changed")
    sensor(name)
    return f"every {interval} s"


@calls(works(name="pond"), fails("conflict", name="roof"), fails("validation", name="Pond 2!"))
@mcp.tool
def register_sensor(name: str) -> str:
    """Register a sensor."""
    if name in SENSORS:
        raise ToolError(f"sensor {name!r} already exists")
    if not name.isidentifier():
        raise ValueError(f"invalid sensor name {name!r}: use letters, digits and _")
    return name


@calls(
    works(expression="1 + 2"),
    fails("payload", expression="1 +"),
    fails("payload", expression="gain * 2"),
)
@mcp.tool
def evaluate(expression: str) -> str:
    """Evaluate an expression."""
    return str(eval(expression, {}))


@calls(works(name="roof"), hides("not_found", name="shed"), hides("crash", name="yard"))
@mcp.tool
async def status(name: str) -> dict:
    """State of a sensor."""
    if name not in SENSORS:
        return {"success": False, "error": f"Sensor '{name}' is unknown"}
    try:
        return {"success": True, "tags": len(SENSORS[name]["tags"])}
    except Exception as exc:
        return {"success": False, "error": f"{type(exc).__name__}: {exc}"}


@calls(works(device="gw3"), hides("network", device="gw1"), hides("timeout", device="gw2"))
@mcp.tool
async def battery(device: str) -> str:
    """Charge of a device's battery."""
    if device == "gw3":
        return "97 %"
    try:
        url = f"http://127.0.0.1:{CLOSED_PORT}" if device == "gw1" else f"{UPSTREAM}/slow"
        async with httpx.AsyncClient(timeout=0.3) as client:
            return (await client.get(url)).text
    except httpx.HTTPError as exc:
        return f"Failed to query battery of {device}: {exc or type(exc).__name__}"


@calls(hides("misconfig", name="roof"))
@mcp.tool
def trend(name: str) -> str:
    """Trend of a series."""
    return "Error: module 'scipy' is not installed on the server"


@calls(works(value=19.0), works(value=99.0))
@mcp.tool
def plausible(value: float) -> dict:
    """Whether a value is plausible."""
    return {"valid": value < 60, "reason": None if value < 60 else "value out of range [-40, 60]"}


@calls(works(query="error"), works(query="zzz"))
@mcp.tool
def search_log(query: str) -> str:
    """Search the device log."""
    lines = ["error: sensor bus timeout at 03:12", "error count reset"]
    found = [line for line in lines if query in line]
    return "\n".join(found) or "No matching entries found."


also("delete_sensor", fails("unknown", name="roof"))

if __name__ == "__main__":
    run(lambda: mcp.run(show_banner=False))
