"""Recipes: standalone FastMCP; details of exceptions masked on request."""

import asyncio
import datetime
import decimal
import email
import fractions
import glob
import ipaddress
import json
import logging
import os
import plistlib
import random
import re
import shlex
import sqlite3
import string
import subprocess
import sys
import textwrap
import types
import urllib.error
import urllib.request
import uuid
import zlib
from collections import Counter, namedtuple
from enum import IntEnum
from pathlib import Path
from typing import Any, TypedDict

import httpx
import pymysql
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from native import also, calls, run

mcp = FastMCP("recipes", mask_error_details="masked" in sys.argv)
log = logging.getLogger(__name__)
BOOK = Path("cookbook")


def prepare():
    BOOK.mkdir(exist_ok=True)
    (BOOK / "pancakes.json").write_text(
        json.dumps(
            {
                "serves": 4,
                "minutes": 20,
                "steps": ["mix", "fry"],
                "grams": {"flour": 250, "milk": 500},
            }
        )
    )
    (BOOK / "risotto.json").write_text(
        json.dumps(
            {
                "serves": 0,
                "minutes": None,
                "steps": [],
                "grams": {"rice": "300 g"},
                "author": {"name": None},
            }
        )
    )
    (BOOK / "goulash.json").write_text('{"serves": 4, "minutes": 90, "steps": ["brown onions"')
    (BOOK / "strudel.json").write_bytes(b'{"serves": 6, "note": "f\xfcr Oma"}')
    (BOOK / "photos.z").write_bytes(b"x\x9c\x03 broken")
    (BOOK / "nutrition.plist").write_bytes(b"bplist00garbage")
    (BOOK / "units.txt").write_text("cup=240\ntbsp\ntsp=5\n")
    (BOOK / "print.log").unlink(missing_ok=True)
    (BOOK / "print.log").symlink_to("/dev/full")
    (BOOK / "favourites").unlink(missing_ok=True)
    (BOOK / "favourites").symlink_to("/proc/sys/kernel/version")
    (BOOK / "plans.db").write_bytes(b"SQLite format 3\x00" + bytes(84) + b"\xff" * 4000)


prepare()


class Heat(IntEnum):
    LOW = 1
    HIGH = 3


def load(name: str) -> dict[str, Any]:
    path = BOOK / f"{name}.json"
    if not path.is_file():
        raise ToolError(f"No recipe called '{name}'. Known recipes: pancakes, risotto")
    return json.loads(path.read_text(encoding="utf-8"))


@calls(
    works(name="pancakes"),
    works(name="risotto"),
    fails("not_found", name="lasagne"),
    fails("misconfig", name="goulash"),
    fails("misconfig", name="strudel"),
    fails("validation", name=7),
    fails("validation"),
)
@mcp.tool
def get_recipe(name: str) -> dict:
    """One recipe."""
    return load(name)


@calls(
    works(name="pancakes", guests=8),
    fails("crash", name="risotto", guests=2),
    fails("validation", name="pancakes", guests=0),
)
@mcp.tool
def scale(name: str, guests: int) -> str:
    """Factor for a number of guests."""
    if guests < 1:
        raise ToolError("guests must be at least 1")
    return str(fractions.Fraction(guests, load(name)["serves"]))


@calls(works(name="pancakes"), fails("crash", name="risotto"), works(name="pancakes"))
@mcp.tool
def total_weight(name: str) -> int:
    """Weight of all ingredients."""
    return sum(load(name)["grams"].values())


@calls(works(name="pancakes"), fails("crash", name="risotto"))
@mcp.tool
def first_step(name: str) -> str:
    """First step of a recipe."""
    return load(name)["steps"][0]


@calls(fails("crash", name="pancakes"), works(name="risotto"))
@mcp.tool
def author(name: str) -> str:
    """Author of a recipe."""
    return str(load(name)["author"]["name"])


@calls(works(name="pancakes"), fails("crash", name="risotto"))
@mcp.tool
def ready_at(name: str) -> str:
    """When the meal is ready if one starts at noon."""
    return str(
        datetime.datetime(2026, 11, 1, 12) + datetime.timedelta(minutes=load(name)["minutes"])
    )


@calls(works(level=1), fails("crash", level=2))
@mcp.tool
def heat(level: int) -> str:
    """Name of a heat level."""
    return Heat(level).name


@calls(fails("crash", unit="tsp"), works(unit="cup"))
@mcp.tool
def unit_in_ml(unit: str) -> int:
    """Millilitres of a unit."""
    for line in (BOOK / "units.txt").read_text().splitlines():
        name, amount = line.split("=")
        if name == unit:
            return int(amount)
    raise ToolError(f"Unknown unit: {unit}")


@calls(works(text="salt pepper"), fails("crash", text="salt"))
@mcp.tool
def pair(text: str) -> str:
    """The second ingredient of a pair."""
    return re.match(r"(\w+) (\w+)", text).group(2)


@calls(fails("crash", name="pancakes"))
@mcp.tool
def allergens(name: str) -> list:
    """Allergens of a recipe."""
    table = {"flour": "gluten", "milk": "lactose"}
    for ingredient in table:
        if ingredient == "flour":
            table.pop("milk")
    return sorted(table.values())


@calls(fails("crash", name="pancakes"), fails("crash", name="risotto"))
@mcp.tool
def difficulty(name: str) -> int:
    """How difficult a recipe is."""
    steps = load(name)["steps"]
    if len(steps) < 9:
        score = undefined_base + len(steps)
    return score


@calls(works(kind="sweet"), fails("crash", kind="savoury"))
@mcp.tool
def side_dish(kind: str) -> str:
    """A dish that goes with it."""
    if kind == "sweet":
        dish = "apple sauce"
    return dish


@calls(fails("crash", week=46))
@mcp.tool
def shopping_list(week: int) -> list:
    """What to buy in a week."""
    Item = namedtuple("Item", "name grams")
    return [Item("flour")]


@calls(fails("crash", a="flour", b="sugar"))
@mcp.tool
def substitute(a: str, b: str) -> str:
    """Replace an ingredient."""
    pantry = [each for each in glob.glob("pantry/*") if b in each]
    assert pantry, pantry
    return pantry[0]


@calls(fails("crash", depth=1))
@mcp.tool
def menu_tree(depth: int) -> str:
    """Menus as a tree."""
    tree: dict = {"menu": []}
    tree["menu"].append(tree)
    return json.dumps(tree)


@calls(works(name="pancakes"), fails("crash", name="risotto"))
@mcp.tool(
    output_schema={
        "type": "object",
        "properties": {"kcal": {"type": "integer"}},
        "required": ["kcal"],
    }
)
def calories(name: str):
    """Calories per portion."""
    return {"kcal": 380} if name == "pancakes" else ["n/a"]


@calls(fails("internal", name="pancakes"), works(name="risotto"))
@mcp.tool
async def reserve_oven(name: str) -> str:
    """Reserve the oven."""
    if name == "pancakes":
        await asyncio.wait_for(asyncio.Future(), 0.15)
    return "reserved"


@calls(fails("misconfig", name="pancakes"))
@mcp.tool
def photo(name: str) -> str:
    """Photo of a recipe."""
    return zlib.decompress((BOOK / "photos.z").read_bytes()).hex()


@calls(fails("misconfig", name="pancakes"), fails("misconfig", name="risotto"))
@mcp.tool
def nutrition(name: str) -> dict:
    """Nutrition facts."""
    try:
        return plistlib.loads((BOOK / "nutrition.plist").read_bytes())[name]
    except plistlib.InvalidFileException as e:
        raise ToolError("nutrition.plist could not be parsed; reinstall the nutrition data") from e


@calls(fails("misconfig", week=46), fails("misconfig", week=47))
@mcp.tool
def meal_plan(week: int) -> list:
    """Meals of a week."""
    return (
        sqlite3.connect(BOOK / "plans.db")
        .execute("SELECT * FROM plans WHERE week = ?", (week,))
        .fetchall()
    )


@calls(fails("misconfig", name="pancakes"))
@mcp.tool
def print_card(name: str) -> str:
    """Print a recipe."""
    return subprocess.check_output(shlex.split(f"lp -d kitchen {name}.txt"), text=True)


@calls(fails("misconfig", name="pancakes"))
@mcp.tool
def scan_card(name: str) -> str:
    """Read a recipe card."""
    try:
        subprocess.run(["tesseract", f"{name}.png", "-"], check=True)
    except FileNotFoundError:
        raise ToolError(
            "tesseract is not installed or it's not in your PATH. See README file for more information."
        )
    return ""


@calls(fails("internal", name="pancakes"), fails("internal", name="risotto"))
@mcp.tool
def print_queue(name: str) -> str:
    """Put a recipe into the print queue."""
    try:
        with (BOOK / "print.log").open("w") as file:
            file.write(name)
    except OSError as e:
        raise ToolError(f"Could not write print.log: {e.strerror}") from e
    return "queued"


@calls(fails("misconfig", name="pancakes"))
@mcp.tool
def favourite(name: str) -> str:
    """Mark a recipe as favourite."""
    (BOOK / "favourites").write_text(name)
    return "saved"


@calls(fails("misconfig", text="Kaiserschmarrn"))
@mcp.tool
def read_aloud(text: str) -> str:
    """Read a recipe aloud."""
    import pyttsx3

    return pyttsx3.__name__


@calls(fails("misconfig", name="risotto"))
@mcp.tool
def wine(name: str) -> str:
    """Wine that goes with a recipe."""
    token = os.getenv("SOMMELIER_TOKEN")
    assert token, "SOMMELIER_TOKEN is empty"
    return token


@calls(fails("misconfig", name="risotto"))
@mcp.tool
def translate_recipe(name: str) -> str:
    """Recipe in another language."""
    if "DEEPL_KEY" not in os.environ:
        raise ToolError("Translation unavailable: the server was started without DEEPL_KEY.")
    return name


@calls(fails("misconfig", style="rustic"))
@mcp.tool
def card_style(style: str) -> str:
    """Style sheet of recipe cards."""
    try:
        return Path(__file__).with_name("styles").joinpath("cards.css").read_text()
    except OSError as e:
        log.error("cannot read style sheet: %s", e)
        raise ToolError("Internal problem while preparing the card") from None


@calls(fails("network", shop="corner"), fails("network", shop="market"))
@mcp.tool
async def prices(shop: str) -> str:
    """Prices in a shop."""
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{CLOSED_PORT}/prices/{shop}")).text


@calls(fails("network", shop="farm"))
@mcp.tool
def farm_offers(shop: str) -> str:
    """Offers of a farm."""
    try:
        return urllib.request.urlopen("http://farm.recipes.invalid/offers").read().decode()
    except urllib.error.URLError as e:
        raise ToolError(f"Could not reach the farm shop: {e.reason}") from e


@calls(fails("upstream", name="pancakes"), fails("upstream", name="risotto"))
@mcp.tool
def similar(name: str) -> str:
    """Similar recipes on the web."""
    return urllib.request.urlopen(f"{UPSTREAM}/502").read().decode()


@calls(
    fails("upstream", query="soup"),
    fails("timeout", query="stew"),
    fails("timeout", query="broth"),
    fails("quota", query="curry"),
    works(query="pie"),
)
@mcp.tool
async def search_web(query: str) -> list:
    """Recipes on the web."""
    if query == "pie":
        return []
    path = {"soup": "500", "stew": "slow", "broth": "slow", "curry": "429"}[query]
    async with httpx.AsyncClient(timeout=0.3) as client:
        try:
            reply = await client.get(f"{UPSTREAM}/{path}")
        except httpx.ReadTimeout:
            if query == "broth":
                raise
            raise ToolError("Recipe search timed out after 0.3s") from None
    if reply.status_code == 429:
        raise ToolError("Too many searches. Free plan allows 50 per day.")
    raise ToolError(f"Recipe search failed with HTTP {reply.status_code}")


@calls(fails("down", family="Huber"), fails("down", family="Maier"))
@mcp.tool
def family_book(family: str) -> str:
    """Cookbook of a family."""
    return str(
        pymysql.connect(
            host="127.0.0.1", port=CLOSED_PORT, user="cook", password="x", connect_timeout=1
        )
    )


@calls(fails("network", shop="spices"))
@mcp.tool
def spice_stock(shop: str) -> str:
    """Stock of a spice shop."""
    return urllib.request.urlopen(UPSTREAM.replace("http:", "https:")).read().decode()


@calls(fails("upstream", brand="acme"))
@mcp.tool
def barcode(brand: str) -> str:
    """Product behind a barcode."""
    return json.loads(urllib.request.urlopen(f"{UPSTREAM}/html").read())["name"]


@calls(fails("auth", list="weekly"))
@mcp.tool
def sync_list(list: str) -> str:
    """Synchronise a shopping list."""
    try:
        urllib.request.urlopen(f"{UPSTREAM}/401")
    except urllib.error.HTTPError as e:
        raise ToolError(f"List provider says {e.code}: invalid or expired access token") from e
    return "synced"


@calls(
    works(name="toast", minutes=3),
    fails("conflict", name="pancakes", minutes=3),
    fails("validation", name="", minutes=3),
    fails("validation", name="soup", minutes=-1),
    fails("permission", name="admin-cake", minutes=9),
    fails("state", name="locked", minutes=9),
)
@mcp.tool
def add_recipe(name: str, minutes: int) -> str:
    """Add a recipe."""
    if not name:
        raise ToolError("A recipe needs a name")
    if minutes < 0:
        raise ValueError("minutes is negative")
    if (BOOK / f"{name}.json").exists():
        raise ToolError(f"{name} is already in the book")
    if name.startswith("admin"):
        raise ToolError("Names starting with 'admin' are reserved")
    if name == "locked":
        raise ToolError("The book is being edited by someone else; finish that edit first")
    return "added"


@calls(works(pattern="pan.*"), fails("payload", pattern="pan(*"), fails("payload", pattern="[a-"))
@mcp.tool
def find_recipes(pattern: str) -> list:
    """Recipes whose name matches."""
    try:
        return [path.stem for path in sorted(BOOK.glob("*.json")) if re.match(pattern, path.stem)]
    except re.error as e:
        raise ToolError(f"Bad pattern: {e}") from e


@calls(
    fails("unsupported", format="docx"),
    works(format="text"),
    fails("not_found", format="text", name="pho"),
)
@mcp.tool
def export(format: str, name: str = "pancakes") -> str:
    """Export a recipe."""
    if format != "text":
        raise ToolError(f"Export to {format} is not supported yet")
    return str(load(name)["steps"])


@calls(works(name="pancakes"), hides("crash", name="risotto"), hides("not_found", name="sushi"))
@mcp.tool
def minutes_per_step(name: str) -> str:
    """Minutes per step."""
    try:
        recipe = load(name)
        return str(recipe["minutes"] / len(recipe["steps"]))
    except ToolError as e:
        return str(e)
    except Exception as e:
        return f"Something went wrong: {e!r}"


@calls(
    works(name="pancakes"), hides("misconfig", name="goulash"), hides("misconfig", name="strudel")
)
@mcp.tool
def step_count(name: str) -> dict:
    """Number of steps."""
    try:
        return {"result": len(load(name)["steps"]), "error": None}
    except ValueError as e:
        return {"result": None, "error": f"recipe file is damaged: {e}"}


@calls(works(city="Graz"), hides("upstream", city="Linz"), hides("network", city="Wels"))
@mcp.tool
def markets(city: str) -> str:
    """Farmers' markets in a city."""
    if city == "Graz":
        return "Error-free picks at Kaiser-Josef-Platz, Saturdays"
    try:
        path = f"{UPSTREAM}/503" if city == "Linz" else f"http://127.0.0.1:{CLOSED_PORT}"
        return urllib.request.urlopen(path).read().decode()
    except urllib.error.URLError as e:
        return f"Request failed: {e}"


@calls(works(text="250 g flour"), works(text="some flour"))
@mcp.tool
def check_ingredient(text: str) -> dict:
    """Whether an ingredient line can be parsed."""
    ok = text[0].isdigit()
    return {"ok": ok, "problems": [] if ok else [{"field": "amount", "message": "missing amount"}]}


@calls(works(name="burnt"), works(name="failed"))
@mcp.tool
def tips(name: str) -> str:
    """Tips for cooking."""
    return {"burnt": "If the crust has burnt, the oven failed to vent.", "failed": "no results"}[
        name
    ]


also("order_pizza", fails("unknown", size="L"))

if __name__ == "__main__":
    run(lambda: mcp.run(show_banner=False))
