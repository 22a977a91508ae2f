"""Laboratory samples: the low-level server of the Python SDK 1 with one long dispatcher."""

import asyncio
import csv
import gzip
import hashlib
import http.client
import json
import logging
import os
import pickle
import plistlib
import queue
import socket
import sqlite3
import statistics
import string
import subprocess
import sys
import tarfile
import time
import traceback
import urllib.request
from collections import namedtuple
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import httpx
import mcp.types as types
import pymysql
import redis
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import McpError
from native import also, run

logging.basicConfig(
    level=logging.INFO, stream=sys.stderr, format="%(levelname)s:%(name)s:%(message)s"
)
logger = logging.getLogger("labserver")
app = Server("laboratory")
BASE = Path("lab")
TOOLS = {}


def prepare():
    for folder in ("methods", "results", "reference", "instruments", "queue", "qc"):
        (BASE / folder).mkdir(parents=True, exist_ok=True)
    (BASE / "methods/icp.json").write_text('{"name": "ICP-MS", "limit": 0.02, "unit": "mg/l"}')
    (BASE / "methods/hplc.json").write_text('{"name": "HPLC", "unit": "mg/l"}')
    (BASE / "methods/gc.json").write_text("{name: GC}")
    (BASE / "results/S-1.csv").write_text("analyte;value\nPb;0.013\nCd;0.002\n")
    (BASE / "results/S-2.csv").write_text("analyte;value\nPb;<0.01\n")
    (BASE / "results/S-3.csv").write_bytes(b"analyte;value\n\xff\xfe;1\n")
    (BASE / "reference/limits.pickle").write_bytes(b"\x80\x04K\x01")
    (BASE / "reference/elements.plist").write_text("<plist><dict></dict>")
    (BASE / "instruments/icp.lock").write_text("pid 4242\n")
    (BASE / "qc/2026.json.gz").write_bytes(gzip.compress(b'{"ok": 12}')[:-6])
    (BASE / "qc/2025.json.gz").write_bytes(gzip.compress(b'{"ok": 9}'))
    (BASE / "qc/2024.json.gz").write_bytes(b'{"ok": 7}')
    (BASE / "raw.tar").write_bytes(b"ustar" * 40)
    (BASE / "report.out").unlink(missing_ok=True)
    (BASE / "report.out").symlink_to("/dev/full")
    (BASE / "calibrate").write_text("print 'python 2 only'\n")
    (BASE / "samples.db").unlink(missing_ok=True)
    db = sqlite3.connect(BASE / "samples.db")
    db.executescript(
        "CREATE TABLE samples (id TEXT PRIMARY KEY, taken TEXT); INSERT INTO samples VALUES ('S-1', '2026-11-02')"
    )
    db.close()


prepare()

Sample = namedtuple("Sample", "id matrix mass taken state readings")
SAMPLES = {
    "S-1": Sample("S-1", "water", 100, "2026-11-02", "received", [1.0, 1.2, 1.1]),
    "S-2": Sample("S-2", "soil", 0, "02.11.2026", "measured", [3.0]),
    "S-3": Sample("S-3", None, "12g", None, "released", []),
}
TYPES = {"str": "string", "int": "integer", "num": "number", "bool": "boolean", "list": "array"}


def tool(name, parameters, *planned, output=None, required=None):
    """Register a tool: parameters as "sample_id:str count:int"."""
    properties = {}
    for parameter in parameters.split():
        key, _, kind = parameter.partition(":")
        properties[key] = {"type": TYPES[kind]}
    schema = {"type": "object", "properties": properties}
    schema["required"] = list(properties) if required is None else required

    def declare(function):
        TOOLS[name] = (function, schema, output)
        also(name, *planned)
        return function

    return declare


class LabError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def sample(sample_id):
    if sample_id not in SAMPLES:
        raise LabError("SAMPLE_UNKNOWN", f"Sample {sample_id!r} is not registered.")
    return SAMPLES[sample_id]


ID = "sample_id:str"


@tool(
    "get_sample",
    ID,
    works(sample_id="S-1"),
    fails("not_found", sample_id="S-404"),
    fails("validation"),
    fails("validation", sample_id=7),
    works(sample_id="S-3"),
)
def get_sample(sample_id):
    return json.dumps(sample(sample_id)._asdict())


@tool(
    "concentration",
    ID,
    works(sample_id="S-1"),
    fails("crash", sample_id="S-2"),
    fails("crash", sample_id="S-3"),
)
def concentration(sample_id):
    return str(Fraction(3, sample(sample_id).mass))


@tool(
    "age_of_sample",
    ID,
    works(sample_id="S-1"),
    fails("crash", sample_id="S-2"),
    fails("crash", sample_id="S-3"),
)
def age_of_sample(sample_id):
    taken = datetime.strptime(sample(sample_id).taken, "%Y-%m-%d")
    return f"{(datetime(2026, 11, 23) - taken).days} days"


@tool(
    "deviation", ID, works(sample_id="S-1"), fails("crash", sample_id="S-2"), works(sample_id="S-1")
)
def deviation(sample_id):
    return str(statistics.stdev(sample(sample_id).readings))


@tool(
    "matrix_code",
    ID,
    works(sample_id="S-1"),
    fails("crash", sample_id="S-3"),
    works(sample_id="S-2"),
)
def matrix_code(sample_id):
    return sample(sample_id).matrix[:2].upper()


@tool(
    "detection_limit",
    "method:str",
    works(method="icp"),
    fails("crash", method="hplc"),
    fails("misconfig", method="gc"),
    fails("not_found", method="xrf"),
    works(method="icp"),
)
def detection_limit(method):
    path = BASE / f"methods/{method}.json"
    if not path.exists():
        raise LabError("METHOD", f"There's no method called '{method}'. Methods: gc, hplc, icp")
    return str(json.loads(path.read_text())["limit"])


@tool(
    "read_results",
    ID,
    works(sample_id="S-1"),
    fails("misconfig", sample_id="S-2"),
    fails("misconfig", sample_id="S-3"),
)
def read_results(sample_id):
    with open(BASE / f"results/{sample(sample_id).id}.csv", encoding="utf-8") as file:
        return str(
            {row["analyte"]: float(row["value"]) for row in csv.DictReader(file, delimiter=";")}
        )


@tool(
    "legal_limit", "analyte:str", fails("misconfig", analyte="Pb"), fails("misconfig", analyte="Cd")
)
def legal_limit(analyte):
    return pickle.loads((BASE / "reference/limits.pickle").read_bytes())[analyte]


@tool(
    "element_info", "symbol:str", fails("misconfig", symbol="Pb"), fails("misconfig", symbol="Hg")
)
def element_info(symbol):
    try:
        return plistlib.loads((BASE / "reference/elements.plist").read_bytes())[symbol]
    except Exception as e:
        raise RuntimeError(f"reference data: {type(e).__name__}") from e


@tool(
    "quality_control",
    "year:int",
    works(year=2025),
    fails("misconfig", year=2026),
    fails("misconfig", year=2024),
    fails("not_found", year=1999),
)
def quality_control(year):
    path = BASE / f"qc/{year}.json.gz"
    if year < 2020:
        raise LabError("QC", f"No quality control data before 2020 (asked for {year})")
    with gzip.open(path) as file:
        return file.read().decode()


@tool("raw_files", ID, fails("misconfig", sample_id="S-1"), fails("misconfig", sample_id="S-2"))
def raw_files(sample_id):
    try:
        with tarfile.open(BASE / "raw.tar") as archive:
            return str(archive.getnames())
    except tarfile.TarError as e:
        raise LabError("E-RAW-02", f"raw.tar: {e}")


@tool("taken_on", "sample_id:str", works(sample_id="S-1"), fails("crash", sample_id="S-2"))
def taken_on(sample_id):
    db = sqlite3.connect(BASE / "samples.db")
    return db.execute("SELECT taken FROM samples WHERE id = ?", (sample_id,)).fetchone()[0]


@tool("batches", "limit:int", fails("misconfig", limit=5), fails("misconfig", limit=50))
def batches(limit):
    db = sqlite3.connect(BASE / "samples.db")
    return str(db.execute(f"SELECT batch_no FROM samples LIMIT {limit}").fetchall())


@tool("open_registry", "name:str", fails("misconfig", name="2026"), fails("misconfig", name="2025"))
def open_registry(name):
    db = sqlite3.connect(BASE / "registry" / "main.db")
    return str(db.execute("SELECT 1").fetchone())


@tool("spectrum", ID, fails("misconfig", sample_id="S-1"), fails("misconfig", sample_id="S-3"))
def spectrum(sample_id):
    import rdkit.Chem

    return rdkit.Chem.__name__


@tool("calibrate", "instrument:str", fails("misconfig", instrument="icp"))
def calibrate(instrument):
    done = subprocess.run(
        [sys.executable, "lab/calibrate", instrument], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise LabError(
            "CAL", f"calibrate: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
        )
    return done.stdout


@tool(
    "integrate_peaks", ID, fails("misconfig", sample_id="S-1"), fails("misconfig", sample_id="S-2")
)
def integrate_peaks(sample_id):
    done = subprocess.run(
        f"openms-peaks --in {sample_id}.mzML", shell=True, capture_output=True, text=True
    )
    done.check_returncode()
    return done.stdout


@tool(
    "export_report",
    "sample_id:str",
    works(sample_id="S-1"),
    fails("internal", sample_id="S-2"),
    works(sample_id="S-3"),
)
def export_report(sample_id):
    if sample_id == "S-2":
        with open(BASE / "report.out", "w") as file:
            file.write("report\n" * 9000)
    return "exported"


@tool("start_run", "instrument:str", fails("internal", instrument="icp"), works(instrument="hplc"))
def start_run(instrument):
    lock = BASE / f"instruments/{instrument}.lock"
    if lock.exists():
        raise LabError("LOCK", f"stale lock file {lock.name} left behind by dead process 4242")
    return "started"


@tool(
    "translate_report",
    "language:str",
    fails("misconfig", language="en"),
    fails("misconfig", language="fr"),
)
def translate_report(language):
    key = os.environ.get("DEEPL_AUTH_KEY") or ""
    if len(key) < 10:
        raise LabError(
            "CONFIG", "DEEPL_AUTH_KEY is empty or too short. Check the .env file of the MCP server."
        )
    return key


@tool("sign_report", ID, fails("misconfig", sample_id="S-1"))
def sign_report(sample_id):
    key = Path(os.path.expanduser("~/.labkeys/signing.pem"))
    return hashlib.sha256(key.read_bytes()).hexdigest()


@tool("dilution", "factor:int", works(factor=10), fails("crash", factor=100), works(factor=10))
def dilution(factor):
    assert factor < 50
    return f"1:{factor}"


@tool(
    "next_label",
    "prefix:str",
    works(prefix="S"),
    fails("crash", prefix="Q"),
    fails("validation", prefix="ss"),
)
def next_label(prefix):
    if len(prefix) != 1:
        raise LabError("ARG", "prefix: one letter please")
    template = {"S": "$prefix-$year", "Q": "$prefix-$serial"}[prefix]
    return string.Template(template).substitute(prefix=prefix, year=2026)


@tool("reserve_slot", "day:str", works(day="mon"), fails("internal", day="sun"), works(day="tue"))
def reserve_slot(day):
    if day == "sun":
        raise queue.Full
    return "reserved"


@tool(
    "compare",
    "a:str b:str",
    works(a="S-1", b="S-1"),
    fails("crash", a="S-1", b="S-3"),
    fails("not_found", a="S-1", b="Z-9"),
)
def compare(a, b):
    first, second = sample(a), sample(b)
    return "heavier" if first.mass > second.mass else "not heavier"


NUMBER = {"type": "object", "properties": {"mean": {"type": "number"}}, "required": ["mean"]}


@tool(
    "mean_reading",
    ID,
    works(sample_id="S-1"),
    fails("crash", sample_id="S-3"),
    works(sample_id="S-2"),
    output=NUMBER,
)
def mean_reading(sample_id):
    readings = sample(sample_id).readings
    return {"mean": statistics.mean(readings)} if readings else {"mean": "none"}


@tool(
    "weigh",
    ID,
    works(sample_id="S-1"),
    fails("network", sample_id="S-2"),
    works(sample_id="S-1"),
    fails("timeout", sample_id="S-3"),
)
def weigh(sample_id):
    if sample_id == "S-1":
        return "100.2 g"
    if sample_id == "S-2":
        with socket.create_connection(("balance-2.lab.invalid", 4001), timeout=1) as balance:
            return balance.recv(64).decode()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with socket.create_connection(listener.getsockname(), timeout=0.2) as balance:
        return balance.recv(64).decode()


@tool("lims_lookup", ID, fails("down", sample_id="S-1"), fails("down", sample_id="S-2"))
def lims_lookup(sample_id):
    return str(pymysql.connect(host="127.0.0.1", port=CLOSED_PORT, user="lims", connect_timeout=1))


@tool("cached_price", "method:str", fails("down", method="icp"), fails("down", method="gc"))
def cached_price(method):
    try:
        return redis.Redis(port=CLOSED_PORT, socket_timeout=1).get(method)
    except redis.RedisError as e:
        logger.exception("cache")
        raise LabError("CACHE", "price cache is unavailable") from e


@tool(
    "order_reagent",
    "item:str",
    works(item="HNO3"),
    fails("upstream", item="HCl"),
    fails("upstream", item="NaOH"),
    fails("quota", item="KOH"),
    fails("auth", item="KCN"),
    fails("upstream", item="H2O2"),
    works(item="HNO3"),
)
def order_reagent(item):
    if item == "HNO3":
        return "ordered"
    path = {"HCl": "/500", "NaOH": "/504", "KOH": "/429", "KCN": "/401", "H2O2": "/empty"}[item]
    reply = httpx.get(UPSTREAM + path, timeout=1)
    if reply.status_code != 200:
        raise LabError("SUPPLIER", f"supplier API returned status {reply.status_code}")
    return reply.json()


@tool(
    "send_to_authority",
    "report:str",
    fails("network", report="R-1"),
    works(report="R-2"),
    fails("network", report="R-3"),
)
def send_to_authority(report):
    if report == "R-2":
        return "sent"
    if report == "R-3":
        return urllib.request.urlopen(UPSTREAM.replace("http", "https"), timeout=1).read().decode()
    connection = http.client.HTTPConnection("127.0.0.1", CLOSED_PORT, timeout=1)
    connection.request("POST", "/reports")
    return connection.getresponse().read().decode()


@tool(
    "courier_status", "number:str", fails("upstream", number="C-1"), fails("upstream", number="C-2")
)
def courier_status(number):
    with urllib.request.urlopen(f"{UPSTREAM}/503", timeout=1) as reply:
        return reply.read().decode()


@tool("simulate", "steps:int", works(steps=1), fails("timeout", steps=90))
async def simulate(steps):
    try:
        await asyncio.wait_for(asyncio.sleep(steps / 100), 0.1)
    except asyncio.TimeoutError:
        raise LabError("TIMEOUT", f"simulation cancelled after 100 ms ({steps} steps)")
    return "converged"


@tool(
    "register_sample",
    "sample_id:str mass:num",
    works(sample_id="S-9", mass=5),
    fails("conflict", sample_id="S-1", mass=5),
    fails("validation", sample_id="9", mass=5),
    fails("validation", sample_id="S-9", mass=-2),
    fails("validation", sample_id="S-9", mass="5 g"),
)
def register_sample(sample_id, mass):
    if not sample_id.startswith("S-"):
        raise ValueError("sample_id has to look like S-123")
    if sample_id in SAMPLES:
        raise LabError("DUPLICATE", f"{sample_id} already registered on 2026-11-02")
    if mass <= 0:
        raise LabError("RANGE", f"mass out of range (0, 1000]: {mass}")
    return "registered"


@tool(
    "release",
    ID,
    works(sample_id="S-2"),
    fails("state", sample_id="S-1"),
    fails("state", sample_id="S-3"),
    fails("permission", sample_id="S-2", as_user="trainee"),
)
def release(sample_id, as_user="chief"):
    if as_user == "trainee":
        raise McpError(types.ErrorData(code=-32003, message="trainees cannot release results"))
    state = sample(sample_id).state
    if state != "measured":
        raise LabError("STATE", f"cannot release {sample_id}: state is {state}, expected measured")
    return "released"


@tool(
    "evaluate_formula",
    "formula:str",
    works(formula="2*3"),
    fails("payload", formula="2*(3"),
    fails("payload", formula="a+1"),
)
def evaluate_formula(formula):
    try:
        return str(eval(compile(formula, "<formula>", "eval"), {"__builtins__": {}}))
    except Exception as e:
        raise LabError("FORMULA", f"Your formula could not be evaluated: {e}")


@tool(
    "convert_unit",
    "value:num unit:str",
    works(value=1, unit="ppm"),
    fails("unsupported", value=1, unit="grain"),
)
def convert_unit(value, unit):
    if unit != "ppm":
        raise LabError("UNIT", f"unit {unit} isn't supported (ppm, ppb)")
    return f"{value * 1000} ppb"


@tool(
    "trend",
    ID,
    works(sample_id="S-1"),
    hides("crash", sample_id="S-3"),
    hides("crash", sample_id="S-2"),
    hides("not_found", sample_id="S-5"),
)
def trend(sample_id):
    try:
        readings = sample(sample_id).readings
        return f"slope {(readings[1] - readings[0]):.2f}, last {readings[-1]}"
    except LabError as e:
        return f"[{e.code}] {e}"
    except Exception:
        return traceback.format_exc()


@tool(
    "stock",
    "item:str",
    works(item="HNO3"),
    hides("upstream", item="HCl"),
    hides("network", item="NaOH"),
    hides("misconfig", item="KOH"),
)
def stock(item):
    if item == "HNO3":
        return json.dumps({"status": 200, "result": {"item": item, "bottles": 3}})
    if item == "HCl":
        return json.dumps({"status": 502, "result": None, "message": "bad gateway"})
    if item == "KOH":
        return json.dumps(
            {
                "status": 500,
                "result": None,
                "message": "environment variable STOCK_DB is not defined",
            }
        )
    try:
        httpx.get("http://stock.lab.invalid/", timeout=1)
    except httpx.HTTPError as e:
        return json.dumps({"status": 500, "result": None, "message": f"{e}"})


@tool(
    "email_report",
    "to:str",
    hides("misconfig", to="a@example.org"),
    hides("misconfig", to="b@example.org"),
)
def email_report(to):
    return "Email was not sent: no mail server is configured."


@tool("plausibility", ID, works(sample_id="S-1"), works(sample_id="S-2"))
def plausibility(sample_id):
    readings = sample(sample_id).readings
    issues = [] if len(readings) > 2 else ["too few replicates", "mass is 0"]
    return json.dumps({"passed": not issues, "failed_checks": issues})


@tool("find_analyte", "name:str", works(name="Unobtainium"), works(name="Pb"))
def find_analyte(name):
    return "1 analyte: Pb (lead)" if name == "Pb" else f"No analytes matching '{name}' were found."


@tool("event_log", "", works())
def event_log():
    return "10:01 run 14 aborted: pressure error\n10:20 run 15 ok\n10:44 WARN timeout waiting for autosampler, recovered"


@tool(
    "proxy_call",
    "path:str",
    works(path="/methods"),
    hides("upstream", path="/audit"),
    hides("upstream", path="/plans"),
    hides("not_found", path="/nope"),
)
def proxy_call(path):
    code = {"/methods": 200, "/audit": 500, "/plans": 503, "/nope": 404}[path]
    body = {200: "[]", 500: "Internal Server Error", 503: "", 404: "no route"}[code]
    return json.dumps({"statusCode": code, "headers": {"server": "lims/4"}, "body": body})


@tool(
    "temperature", "room:str", works(room="cold"), hides("down", room="freezer"), works(room="cold")
)
def temperature(room):
    return (
        "4.1 C" if room == "cold" else "freezer: n/a (sensor gateway offline, no data since 09:12)"
    )


@tool(
    "certificate",
    ID,
    works(sample_id="S-1"),
    hides("crash", sample_id="S-2"),
    hides("state", sample_id="S-3"),
)
def certificate(sample_id):
    if sample_id == "S-3":
        return "Not issued. Results of S-3 have to be measured before a certificate can be issued."
    try:
        return f"Certificate: {sample(sample_id).readings[1]}"
    except Exception as e:
        return f"<error>{type(e).__name__}: {e}</error>"


@tool("uncertainty", "analyte:str", works(analyte="Pb"), works(analyte="Cd"))
def uncertainty(analyte):
    return json.dumps({"analyte": analyte, "error": 0.02, "unit": "mg/l", "coverage": 2})


@tool(
    "limit_check",
    "analyte:str value:num",
    works(analyte="Pb", value=0.3),
    works(analyte="Pb", value=0.001),
)
def limit_check(analyte, value):
    return f"FAIL: {analyte} above the limit (0.01 mg/l)" if value > 0.01 else "PASS"


@tool("status_of", ID, works(sample_id="S-1"), works(sample_id="S-2"))
def status_of(sample_id):
    return json.dumps(
        {
            "sample": sample_id,
            "status": "rejected" if sample_id == "S-2" else "accepted",
            "reason": "container broken" if sample_id == "S-2" else "",
        }
    )


also("delete_sample", fails("unknown", sample_id="S-1"))


@app.list_tools()
async def list_tools():
    return [
        types.Tool(
            name=name, description=name.replace("_", " "), inputSchema=schema, outputSchema=output
        )
        for name, (_, schema, output) in TOOLS.items()
    ]


@app.call_tool()
async def call_tool(name, arguments):
    if name not in TOOLS:
        raise ValueError(f"Unknown tool: {name}")
    function, _, output = TOOLS[name]
    logger.info("%s %s", name, arguments)
    started = time.monotonic()
    try:
        result = function(**(arguments or {}))
        if asyncio.iscoroutine(result):
            result = await result
    except LabError as e:
        logger.warning("%s: %s", e.code, e)
        text = json.dumps({"error": {"code": e.code, "message": str(e)}})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], isError=True
        )
    except (AttributeError, IndexError, subprocess.SubprocessError, httpx.HTTPError) as e:
        logger.error("%s failed after %.1f s", name, time.monotonic() - started, exc_info=e)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"Error in {name}: {e}")], isError=True
        )
    if output:
        return result
    return [types.TextContent(type="text", text=str(result))]


async def main():
    async with stdio_server() as (read, write):
        await app.run(read, write, app.create_initialization_options())


if __name__ == "__main__":
    run(lambda: asyncio.run(main()))
