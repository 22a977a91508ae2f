"""Geodata: the low-level server of the Python SDK; tools return text, errors or let exceptions go."""

import asyncio
import base64
import csv
import gzip
import http.client
import io
import json
import logging
import math
import os
import pickle
import re
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import xml.parsers.expat
from pathlib import Path

import httpx
import mcp_types as types
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from native import also, calls, run

logging.basicConfig(
    level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
)
log = logging.getLogger("geodata")
LAYERS = Path("layers")
TOOLS = {}


def prepare():
    LAYERS.mkdir(exist_ok=True)
    square = {
        "type": "Polygon",
        "coordinates": [[[15, 47], [16, 47], [16, 48], [15, 48], [15, 47]]],
    }
    (LAYERS / "districts.geojson").write_text(
        json.dumps(
            {
                "features": [
                    {
                        "id": "d1",
                        "geometry": square,
                        "properties": {"name": "Mitte", "people": 1200},
                    },
                    {"id": "d2", "geometry": None, "properties": {"name": "Süd"}},
                    {"id": "d3", "geometry": {"type": "Point"}, "properties": None},
                ]
            }
        )
    )
    (LAYERS / "rivers.geojson").write_text('{"features": [{"id": "r1", NaN')
    (LAYERS / "roads.gpkg").write_bytes(b"GPKG but not really" * 50)
    (LAYERS / "dem.bin").write_bytes(b"\x00\x01\x02")
    (LAYERS / "stops.csv").write_text("id,lat,lon\ns1,47.1,15.4\ns2,47.2,\ns3,north,15.1\n")
    (LAYERS / "pois.pkl").write_bytes(pickle.dumps({"museum": (47.0, 15.4)})[:-6])
    (LAYERS / "track.gpx").write_text("<gpx><trk><trkpt lat='47'></trk></gpx>")
    (LAYERS / "names.csv").write_bytes("Straße;Gemeinde\nÄußere Zeile;Wörth".encode("cp1252"))
    (LAYERS / "tiles.gz").write_bytes(gzip.compress(b"tile" * 100)[:-12])
    for link, target in (("cache", "/dev/full"), ("index.lock", "/proc/sys/kernel/hostname/x")):
        (LAYERS / link).unlink(missing_ok=True)
        (LAYERS / link).symlink_to(target)
    (LAYERS / "geocache.db").unlink(missing_ok=True)
    with sqlite3.connect(LAYERS / "geocache.db") as db:
        db.execute("CREATE TABLE places (name TEXT PRIMARY KEY, lat REAL)")
        db.execute("INSERT INTO places VALUES ('Graz', 47.07)")


prepare()


def tool(**schema):
    """Register a tool; parameters whose type ends in ? are optional."""

    def register(function):
        properties = {name: {"type": kind.rstrip("?")} for name, kind in schema.items()}
        required = [name for name, kind in schema.items() if not kind.endswith("?")]
        TOOLS[function.__name__] = (
            function,
            {"type": "object", "properties": properties, "required": required},
        )
        return function

    return register


def failure(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def invalid(text):
    return MCPError(code=types.INVALID_PARAMS, message=text)


def district(id):
    for feature in json.loads((LAYERS / "districts.geojson").read_text())["features"]:
        if feature["id"] == id:
            return feature
    raise invalid(f"Unknown district id: {id}")


@calls(
    works(id="d1"),
    works(id="d2"),
    fails("not_found", id="d9"),
    fails("validation"),
    fails("validation", id=17),
)
@tool(id="string")
def get_district(args):
    if "id" not in args:
        raise invalid("Missing required parameter 'id'")
    if not isinstance(args["id"], str):
        raise invalid("Parameter 'id' must be a string")
    return json.dumps(district(args["id"])["properties"])


@calls(works(id="d1"), fails("crash", id="d2"), fails("crash", id="d3"))
@tool(id="string")
def centroid(args):
    ring = district(args["id"])["geometry"]["coordinates"][0]
    return f"{sum(x for x, _ in ring) / len(ring):.3f}"


@calls(works(id="d1"), fails("crash", id="d2"), fails("crash", id="d3"))
@tool(id="string")
def density(args):
    people = district(args["id"])["properties"]["people"]
    return f"{people / 100:.0f} per km²"


@calls(fails("crash", id="d1"), works(id="d2"))
@tool(id="string")
def slug(args):
    text = district(args["id"])["properties"]["name"]
    return text if text == "Süd" else text.encode().lower().replace(" ", "-")


@calls(
    works(lat=47.0, lon=15.0),
    fails("validation", lat=470.0, lon=15.0),
    fails("validation", lat="47N", lon=15.0),
    works(lat=-12.5, lon=100.0),
)
@tool(lat="number", lon="number")
def utm_zone(args):
    lat, lon = args["lat"], args["lon"]
    if isinstance(lat, str):
        return failure("lat: expected number, got string")
    if not -90 <= lat <= 90:
        return failure(f"Latitude {lat} is outside the range -90 to 90")
    return str(int((lon + 180) // 6) + 1)


@calls(works(a="Graz"), fails("crash", a="Pole"))
@tool(a="string")
def mercator(args):
    lat = {"Graz": 47.0, "Pole": -90.0}[args["a"]]
    return str(math.log(math.tan(math.radians(lat)) + 1 / math.cos(math.radians(lat))))


@calls(
    works(stop="s1"),
    fails("crash", stop="s2"),
    fails("crash", stop="s3"),
    fails("not_found", stop="s7"),
)
@tool(stop="string")
def stop_position(args):
    for row in csv.DictReader((LAYERS / "stops.csv").open()):
        if row["id"] == args["stop"]:
            return f"{float(row['lat']):.4f}, {float(row['lon']):.4f}"
    return failure(f"stop {args['stop']} does not exist")


@calls(fails("misconfig", river="Mur"), fails("misconfig", river="Enns"))
@tool(river="string")
def river_length(args):
    return str(len(json.loads((LAYERS / "rivers.geojson").read_text())["features"]))


@calls(fails("misconfig", road="A2"))
@tool(road="string")
def road_class(args):
    with sqlite3.connect(LAYERS / "roads.gpkg") as db:
        return str(db.execute("SELECT class FROM roads WHERE ref = ?", (args["road"],)).fetchone())


@calls(fails("misconfig", lat=47.0, lon=15.0), fails("misconfig", lat=47.2, lon=15.3))
@tool(lat="number", lon="number")
def elevation(args):
    try:
        return str(struct.unpack_from("<h", (LAYERS / "dem.bin").read_bytes(), 4)[0])
    except struct.error as e:
        log.exception("elevation model is truncated")
        return failure(f"Internal error reading elevation model: {e}")


@calls(fails("misconfig", kind="museum"))
@tool(kind="string")
def points_of_interest(args):
    return str(pickle.loads((LAYERS / "pois.pkl").read_bytes())[args["kind"]])


@calls(fails("misconfig", track="t1"))
@tool(track="string")
def track_points(args):
    parser = xml.parsers.expat.ParserCreate()
    parser.Parse((LAYERS / "track.gpx").read_bytes(), True)
    return "0"


@calls(fails("misconfig", prefix="Ä"))
@tool(prefix="string")
def street_names(args):
    return (LAYERS / "names.csv").read_text("utf-8")


@calls(fails("misconfig", z=9))
@tool(z="integer")
def tile(args):
    return gzip.decompress((LAYERS / "tiles.gz").read_bytes()).hex()


@calls(fails("misconfig", layer="buildings"), fails("misconfig", layer="trees"))
@tool(layer="string")
def simplify(args):
    done = subprocess.run(
        ["ogr2ogr", "-simplify", "5", "/vsistdout/", args["layer"]], capture_output=True
    )
    return done.stdout.decode()


@calls(fails("misconfig", layer="buildings"))
@tool(layer="string")
def to_tiles(args):
    code = os.system("tippecanoe -o out.mbtiles in.geojson 2>/dev/null")
    if code:
        return failure(f"tippecanoe exited with {os.waitstatus_to_exitcode(code)}")
    return "ok"


@calls(fails("misconfig", place="Graz"))
@tool(place="string")
def timezone(args):
    from timezonefinder import TimezoneFinder

    return TimezoneFinder().timezone_at(lat=47, lng=15)


@calls(works(place="Graz"), fails("misconfig", place="Linz"), fails("misconfig", place="Wels"))
@tool(place="string")
def geocode(args):
    with sqlite3.connect(LAYERS / "geocache.db") as db:
        found = db.execute("SELECT lat FROM places WHERE name = ?", (args["place"],)).fetchone()
    if found:
        return str(found[0])
    if not (key := os.environ.get("GEOCODER_API_KEY")):
        return failure("Geocoder API key not configured")
    return key


@calls(fails("misconfig", place="Graz"))
@tool(place="string")
def population(args):
    with sqlite3.connect(LAYERS / "geocache.db") as db:
        return str(
            db.execute("SELECT population FROM places WHERE name = ?", (args["place"],)).fetchone()
        )


@calls(fails("misconfig", epsg=4326), fails("misconfig", epsg=31287))
@tool(epsg="integer")
def projection(args):
    try:
        return (
            Path(os.environ.get("PROJ_DATA", "/usr/local/share/proj"), "proj.db")
            .read_bytes()[:4]
            .hex()
        )
    except FileNotFoundError:
        return failure("proj_create: no database context specified (proj.db is missing)")


@calls(fails("internal", layer="buildings"), fails("internal", layer="trees"))
@tool(layer="string")
def cache_layer(args):
    with (LAYERS / "cache").open("wb") as file:
        file.write(bytes(10000))
    return "cached"


@calls(fails("misconfig", layer="trees"))
@tool(layer="string")
def build_index(args):
    with (LAYERS / "index.lock").open("x"):
        return "built"


@calls(works(a="x", b="y"), fails("crash", a="x", b="z"))
@tool(a="string", b="string")
def route(args):
    graph = {"x": {"y": 1}, "y": {}}
    seen = [args["a"]]
    while args["b"] not in seen:
        seen.append(next(each for each in graph[seen[-1]] if each not in seen))
    return " ".join(seen)


@calls(fails("crash", layer="trees"))
@tool(layer="string")
def layer_extent(args):
    bounds = [feature["bbox"] for feature in []]
    return str(max(bounds))


@calls(fails("crash", shape="circle"), works(shape="point"))
@tool(shape="string")
def buffer(args):
    if args["shape"] == "point":
        return "buffered"
    radius, unit = "250m".partition("m")
    return radius + unit


@calls(fails("crash", expression="elevation > 300"))
@tool(expression="string")
def contour(args):
    class Grid:
        __slots__ = ("cells",)

    grid = Grid()
    return str(len(grid.cells))


@calls(fails("crash", layer="roads"), fails("crash", layer="trees"))
@tool(layer="string")
def legend(args):
    assert False


@calls(works(layer="districts"), fails("crash", layer="roads"))
@tool(layer="string")
def style(args):
    if args["layer"] == "roads":
        return None
    return "fill: #ccc"


@calls(fails("internal", layer="roads"))
@tool(layer="string")
async def recompute(args):
    try:
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.15)
    except asyncio.TimeoutError:
        return failure("Background worker did not pick up the job; is the queue stuck?")


@calls(
    works(place="Graz"),
    fails("upstream", place="Wien"),
    fails("upstream", place="Linz"),
    fails("timeout", place="Wels"),
    fails("quota", place="Steyr"),
    fails("auth", place="Enns"),
)
@tool(place="string")
async def nominatim(args):
    path = {
        "Graz": "200",
        "Wien": "502",
        "Linz": "html",
        "Wels": "slow",
        "Steyr": "429",
        "Enns": "403",
    }[args["place"]]
    async with httpx.AsyncClient(timeout=0.3) as client:
        try:
            reply = await client.get(f"{UPSTREAM}/{path}")
            reply.raise_for_status()
            return json.dumps(reply.json())
        except httpx.TimeoutException:
            return failure("Request to Nominatim timed out")
        except httpx.HTTPStatusError as e:
            return failure(
                f"Nominatim API error: {e.response.status_code} {e.response.reason_phrase}"
            )
        except json.JSONDecodeError:
            return failure("Nominatim returned an invalid response (text/html instead of JSON)")


@calls(fails("network", server="wms1"), fails("network", server="wms2"))
@tool(server="string")
def wms_capabilities(args):
    connection = http.client.HTTPConnection("127.0.0.1", CLOSED_PORT, timeout=1)
    connection.request("GET", "/wms?request=GetCapabilities")
    return connection.getresponse().read().decode()


@calls(fails("network", server="wfs"))
@tool(server="string")
def wfs_layers(args):
    connection = http.client.HTTPConnection("wfs.geodata.invalid", timeout=1)
    connection.request("GET", "/")
    return "layers"


@calls(fails("network", server="secure"))
@tool(server="string")
def secure_layers(args):
    host = urllib.parse.urlsplit(UPSTREAM)
    connection = http.client.HTTPSConnection(host.hostname, host.port, timeout=1)
    connection.request("GET", "/")
    return "layers"


@calls(fails("network", server="flaky"))
@tool(server="string")
def download_layer(args):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(UPSTREAM).netloc, timeout=1)
    connection.request("GET", "/reset")
    return connection.getresponse().read().decode()


@calls(fails("down", query="SELECT 1"), fails("down", query="SELECT postgis_version()"))
@tool(query="string")
def postgis(args):
    try:
        socket.create_connection(("localhost", CLOSED_PORT), 1)
    except OSError as e:
        return failure(f"could not connect to PostGIS at localhost:5432: {e}")
    return "connected"


@calls(fails("upstream", id="123"), fails("timeout", id="124"))
@tool(id="string")
async def overpass(args):
    async with httpx.AsyncClient(timeout=0.2) as client:
        reply = await client.get(f"{UPSTREAM}/{'504' if args['id'] == '123' else 'slow'}")
    raise MCPError(
        code=types.INTERNAL_ERROR,
        message=f"Overpass: {reply.status_code} The server is probably too busy to handle your request.",
    )


@calls(works(bbox=[1, 2, 3, 4]), fails("payload", bbox=[1, 2]), fails("payload", bbox=[9, 2, 3, 4]))
@tool(bbox="array")
def area(args):
    try:
        west, south, east, north = args["bbox"]
    except ValueError:
        return failure("bbox needs four numbers: west, south, east, north")
    if west > east:
        return failure("bbox: west is greater than east")
    return str((east - west) * (north - south))


@calls(
    works(name="parks"),
    fails("conflict", name="districts"),
    fails("permission", name="../secret"),
    fails("unsupported", name="parks.shp"),
    fails("state", name="frozen"),
)
@tool(name="string")
def create_layer(args):
    name = args["name"]
    if name == "districts":
        return failure("Layer 'districts' already exists")
    if ".." in name:
        return failure("Access denied: path is outside of the layer directory")
    if name.endswith(".shp"):
        raise invalid("Shapefiles are not supported; use GeoJSON or GeoPackage")
    if name == "frozen":
        return failure("Cannot create a layer while the project is frozen. Call unfreeze first.")
    return "created"


@calls(works(id="d1"), hides("crash", id="d2"), hides("not_found", id="d0"))
@tool(id="string")
def area_of_district(args):
    try:
        return str(len(district(args["id"])["geometry"]["coordinates"]))
    except MCPError as e:
        return f"Error: {e.error.message}"
    except Exception as e:
        return f"Failed to compute area: {e}"


@calls(
    works(layer="districts"), hides("misconfig", layer="rivers"), hides("misconfig", layer="lakes")
)
@tool(layer="string")
def count_features(args):
    try:
        if args["layer"] == "lakes":
            return (LAYERS / "project.qgz").read_text()
        features = json.loads((LAYERS / f"{args['layer']}.geojson").read_text())["features"]
    except OSError:
        return "An error occurred: could not open project.qgz"
    except ValueError as e:
        return json.dumps({"error": {"type": "LayerCorruptError", "message": str(e)}})
    return json.dumps({"count": len(features), "error": None})


@calls(works(place="Graz"), hides("upstream", place="Wien"), hides("network", place="Linz"))
@tool(place="string")
async def air_quality(args):
    if args["place"] == "Graz":
        return "PM10: 18 µg/m³ (no exceedance, sensor error ±5 %)"
    async with httpx.AsyncClient(timeout=1) as client:
        try:
            reply = await client.get(
                f"{UPSTREAM}/503" if args["place"] == "Wien" else f"http://127.0.0.1:{CLOSED_PORT}"
            )
            return f"Error fetching air quality: HTTP {reply.status_code}"
        except httpx.ConnectError as e:
            return f"Error fetching air quality: {e}"


@calls(works(geojson='{"type": "Point"}'), works(geojson="{}"))
@tool(geojson="string")
def validate_geojson(args):
    ok = "type" in args["geojson"]
    return json.dumps({"valid": ok, "errors": [] if ok else ["missing member: type"]})


@calls(works(near="nowhere"), works(near="Graz"))
@tool(near="string")
def nearby(args):
    return (
        "No results"
        if args["near"] == "nowhere"
        else json.dumps([{"name": "Fehlerturm", "error_m": 3}])
    )


also("delete_layer", fails("unknown", name="districts"))


async def list_tools(ctx, params):
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=name.replace("_", " "), input_schema=schema)
            for name, (_, schema) in TOOLS.items()
        ]
    )


async def call_tool(ctx, params):
    if params.name not in TOOLS:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    function, _ = TOOLS[params.name]
    try:
        text = function(params.arguments or {})
        if asyncio.iscoroutine(text):
            text = await text
    except (KeyError, TypeError, AttributeError, OSError, httpx.TransportError, sqlite3.Error) as e:
        # What a quick author catches; anything else goes to the SDK.
        log.error("%s failed: %r", params.name, e)
        return failure(f"Error executing {params.name}: {e}")
    if isinstance(text, types.CallToolResult):
        return text
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main():
    server = Server("geodata", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    run(lambda: asyncio.run(main()))
