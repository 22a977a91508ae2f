"""A hotel's bookings: the Python SDK's server class, most exceptions left to the SDK."""

import asyncio
import csv
import gzip
import importlib
import json
import os
import pickle
import re
import sqlite3
import ssl
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Literal

import httpx
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from native import also, calls, run
from pydantic import BaseModel, Field

try:
    from mcp.server.mcpserver import MCPServer as FastMCP
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    from mcp.server.fastmcp import FastMCP
    from mcp.server.fastmcp.exceptions import ToolError

DATA = Path("data")


def prepare():
    DATA.mkdir(exist_ok=True)
    (DATA / "rates.json").write_text('{"low": 80, "high": 140,}')
    (DATA / "menu.json").write_text('{"breakfast": ["eggs", "muesli"], "dinner": []}')
    (DATA / "housekeeping.csv").write_text("room,state\n101,clean\n102\n103,dirty\n")
    (DATA / "guests.bin").write_bytes(b"\x80\x04\x95\x1b\x00\x00guest")
    (DATA / "minibar-2026-10.gz").write_bytes(b"PK\x03\x04 minibar")
    (DATA / "notes.txt").write_bytes("Suite für Familie Öz".encode("latin-1"))
    (DATA / "keycards.db").write_bytes(b"-- keycards, exported --" * 60)
    for link, target in (("folio.txt", "/dev/full"), ("audit.log", "/proc/sys/kernel/ostype")):
        (DATA / link).unlink(missing_ok=True)
        (DATA / link).symlink_to(target)
    (DATA / "hotel.db").unlink(missing_ok=True)
    with sqlite3.connect(DATA / "hotel.db") as db:
        db.execute(
            "CREATE TABLE bookings (id INTEGER PRIMARY KEY, guest TEXT, room INTEGER, state TEXT)"
        )
        db.executemany(
            "INSERT INTO bookings VALUES (?, ?, ?, ?)",
            [
                (1, "Moreau", 101, "confirmed"),
                (2, "Okafor", 204, "cancelled"),
                (3, "Lind", 103, None),
            ],
        )


prepare()
mcp = FastMCP("hotel")


class RoomType(Enum):
    SINGLE = "single"
    DOUBLE = "double"


ROOMS = {
    101: {"type": "single", "price": 80, "beds": 1, "features": {"view": "garden"}},
    102: {"type": "double", "price": 120, "beds": 2, "features": {"view": "street"}},
    103: {"type": "double", "price": "120", "beds": 2, "features": {}},
    204: {"type": "suite", "price": None, "beds": 3},
}
REFERRALS = {"Moreau": "Lind", "Okafor": "Adeyemi", "Adeyemi": "Okafor"}


def room_or_error(number):
    if number not in ROOMS:
        raise ToolError(f"Room {number} does not exist. Rooms: {sorted(ROOMS)}")
    return ROOMS[number]


def fetch(path, timeout=2.0):
    return httpx.get(f"{UPSTREAM}/{path}", timeout=timeout)


@calls(
    works(number=101),
    works(number=102),
    fails("not_found", number=999),
    fails("crash", number=204),
    fails("validation", number="garden room"),
    fails("validation"),
)
@mcp.tool()
def room_details(number: int) -> str:
    """Describe a room."""
    room = room_or_error(number)
    return f"Room {number}: {room['type']}, {room['beds']} beds, view: {room['features'].get('view', 'none')}"


@calls(
    works(number=102, nights=2),
    fails("crash", number=103, nights=2),
    fails("crash", number=204, nights=1),
    fails("validation", number=101, nights=0),
    works(number=101, nights=1),
)
@mcp.tool()
def quote_stay(number: int, nights: int) -> str:
    """Price of a stay."""
    if nights < 1:
        raise ToolError("nights: a stay has at least one night")
    price = room_or_error(number)["price"]
    total = price * nights + 12.5
    return f"{total:.2f} EUR"


@calls(works(number=101), works(number=102), fails("crash", number=204))
@mcp.tool()
def room_type(number: int) -> str:
    """Category of a room."""
    return RoomType(ROOMS[number]["type"]).name


@calls(works(guest="Moreau"), fails("crash", guest="Okafor"), works(guest="Lind"))
@mcp.tool()
def referral_chain(guest: str) -> str:
    """Who recommended the hotel to this guest."""
    if guest not in REFERRALS:
        return guest
    return f"{guest} <- {referral_chain(REFERRALS[guest])}"


@calls(
    works(arrival="2026-12-01", nights=3),
    fails("validation", arrival="first of May", nights=3),
    fails("validation", arrival="2026-02-30", nights=1),
    works(arrival="2026-12-24", nights=1),
)
@mcp.tool()
def free_rooms(arrival: str, nights: int) -> dict:
    """Rooms that are free for a stay."""
    start = date.fromisoformat(arrival)
    if start.month == 12 and start.day == 24:
        return {"available": False, "rooms": [], "reason": "fully booked"}
    return {"available": True, "until": str(start + timedelta(days=nights)), "rooms": [101, 102]}


@calls(
    works(booking=1),
    fails("not_found", booking=77),
    fails("crash", booking=3),
    fails("state", booking=2),
    works(booking=1),
)
@mcp.tool()
def booking_state(booking: int) -> str:
    """State of a booking."""
    with sqlite3.connect(DATA / "hotel.db") as db:
        row = db.execute("SELECT guest, state FROM bookings WHERE id = ?", (booking,)).fetchone()
    if row is None:
        raise ValueError(f"No booking with number {booking}")
    guest, state = row
    if state == "cancelled":
        raise ToolError("This booking was cancelled on 3 October and cannot be opened")
    return f"{guest}: {state.upper()}"


@calls(works(room=101), fails("misconfig", room=102), works(room=103))
@mcp.tool()
def room_history(room: int) -> list:
    """Earlier guests of a room."""
    table = "bookings" if room != 102 else "bookings_archive"
    with sqlite3.connect(DATA / "hotel.db") as db:
        return [row[0] for row in db.execute(f"SELECT guest FROM {table} WHERE room = ?", (room,))]


@calls(works(guest="Lind", order="room"), fails("misconfig", guest="Lind", order="newest"))
@mcp.tool()
def guest_bookings(guest: str, order: Literal["room", "newest"]) -> list:
    """Bookings of a guest."""
    column = {"room": "room", "newest": "created_at"}[order]
    with sqlite3.connect(DATA / "hotel.db") as db:
        return db.execute(
            f"SELECT id, room FROM bookings WHERE guest = ? ORDER BY {column}", (guest,)
        ).fetchall()


@calls(fails("misconfig", card="K-17"), fails("misconfig", card="K-18"))
@mcp.tool()
def keycard_log(card: str) -> list:
    """Doors that a key card opened."""
    with sqlite3.connect(DATA / "keycards.db") as db:
        return db.execute("SELECT door, at FROM log WHERE card = ?", (card,)).fetchall()


@calls(fails("misconfig", season="low"), fails("misconfig", season="high"))
@mcp.tool()
def season_rate(season: str) -> int:
    """Rate of a season."""
    return json.loads((DATA / "rates.json").read_text())[season]


@calls(works(meal="breakfast"), fails("crash", meal="dinner"), fails("not_found", meal="brunch"))
@mcp.tool()
def menu_highlight(meal: str) -> str:
    """First dish of a meal."""
    menu = json.loads((DATA / "menu.json").read_text())
    if meal not in menu:
        raise ToolError(f"We do not serve {meal}")
    return menu[meal][0]


@calls(works(room="101"), fails("crash", room="103"), works(room="101"))
@mcp.tool()
def housekeeping(room: str) -> str:
    """Whether a room is clean."""
    with open(DATA / "housekeeping.csv") as file:
        for number, state in csv.reader(file):
            if number == room:
                return state
    return "unknown room"


@calls(fails("misconfig", name="Moreau"))
@mcp.tool()
def guest_profile(name: str) -> str:
    """What we know of a guest."""
    with (DATA / "guests.bin").open("rb") as file:
        return str(pickle.load(file)[name])


@calls(fails("misconfig", month="2026-10"), works(month="2026-09"))
@mcp.tool()
def minibar(month: str) -> str:
    """Minibar consumption in a month."""
    path = DATA / f"minibar-{month}.gz"
    return gzip.open(path, "rt").read() if path.exists() else f"0 items recorded for {month}"


@calls(fails("misconfig"), fails("misconfig"))
@mcp.tool()
def concierge_notes() -> str:
    """Notes of the concierge."""
    return (DATA / "notes.txt").read_text(encoding="utf-8")


@calls(
    works(booking=1, send=False),
    fails("internal", booking=1, send=True),
    works(booking=2, send=False),
)
@mcp.tool()
def print_folio(booking: int, send: bool) -> str:
    """Write the folio of a booking."""
    text = f"Folio {booking}\n" * 400
    if send:
        with (DATA / "folio.txt").open("w") as file:
            file.write(text)
    return f"{len(text)} characters"


@calls(fails("misconfig", entry="door left open"))
@mcp.tool()
def append_audit(entry: str) -> str:
    """Add an entry to the audit log."""
    with open("data/audit.log", "a") as file:
        file.write(entry + "\n")
    return "ok"


@calls(
    works(booking=1, kind="text"),
    fails("misconfig", booking=1, kind="pdf"),
    fails("misconfig", booking=2, kind="pdf"),
)
@mcp.tool()
def confirmation(booking: int, kind: Literal["text", "pdf"] = "text") -> str:
    """Confirmation of a booking."""
    if kind == "pdf":
        subprocess.run(
            ["wkhtmltopdf", "-q", "confirmation.html", f"confirmation-{booking}.pdf"], check=True
        )
    return f"Confirmation of booking {booking}"


@calls(fails("misconfig", wing="north"))
@mcp.tool()
def fire_plan(wing: str) -> str:
    """Evacuation plan of a wing."""
    return Path(f"/etc/hotel/plans/current.svg").read_text()


@calls(fails("misconfig", number="+43 1 5550100", text="Your room is ready"))
@mcp.tool()
def text_guest(number: str, text: str) -> str:
    """Send a text message."""
    return httpx.post(os.environ["SMS_GATEWAY_URL"], json={"to": number, "text": text}).text


@calls(fails("misconfig", booking=1))
@mcp.tool()
def boarding_qr(booking: int) -> str:
    """QR code for check-in."""
    return importlib.import_module("qrcode").make(str(booking))


@calls(works(code="WINTER"), fails("crash", code="SPRING"), fails("not_found", code="XXL"))
@mcp.tool()
def apply_voucher(code: str) -> str:
    """Discount of a voucher."""
    vouchers = {"WINTER": 10, "SPRING": -5}
    if code not in vouchers:
        raise ValueError("unknown voucher")
    assert vouchers[code] > 0
    return f"{vouchers[code]} %"


@calls(works(text="room was fine"), fails("crash", text="price +++ service"))
@mcp.tool()
def review_mentions(text: str) -> int:
    """How often a review's last word appears in it."""
    word = re.split(r"\s", text)[1]
    return len(re.findall(word, text))


class Stay(BaseModel):
    guest: str
    nights: int
    paid: bool


@calls(works(guest="Moreau"), fails("crash", guest="Lind"))
@mcp.tool()
def current_stay(guest: str) -> Stay:
    """The stay of a guest who is in the house."""
    stays = {"Moreau": ("Moreau", 2, True), "Lind": ("Lind", "three", None)}
    name, nights, paid = stays[guest]
    return Stay(guest=name, nights=nights, paid=paid)


@calls(fails("internal", floor=1), works(floor=2))
@mcp.tool()
async def lock_floor(floor: int) -> str:
    """Lock all doors of a floor."""
    lock = asyncio.Lock()
    async with lock:
        if floor == 1:
            await asyncio.wait_for(lock.acquire(), timeout=0.2)
    return f"floor {floor} locked"


@calls(works(day="2026-11-02"), fails("crash", day="2026-11-03"))
@mcp.tool()
def revenue(day: str) -> str:
    """Revenue per occupied room."""
    rooms = {"2026-11-02": [80, 120], "2026-11-03": []}[day]
    return f"{Decimal(sum(rooms)) / len(rooms):.2f}"


@calls(fails("crash", shift="night"), works(shift="day"))
@mcp.tool()
def handover(shift: str) -> str:
    """Handover notes for a shift."""
    if shift == "day":
        return "nothing to report; yesterday's error E-41 of lift 2 was fixed"
    raise NotImplementedError


@calls(
    works(currency="EUR"),
    fails("upstream", currency="USD"),
    fails("upstream", currency="GBP"),
    fails("quota", currency="JPY"),
)
@mcp.tool()
def exchange_rate(currency: str) -> float:
    """Exchange rate for a currency."""
    if currency == "EUR":
        return 1.0
    status = {"USD": 502, "GBP": 500, "JPY": 429}[currency]
    reply = fetch(status)
    reply.raise_for_status()
    return reply.json()["rate"]


@calls(fails("network", flight="OS 87"))
@mcp.tool()
def flight_status(flight: str) -> str:
    """Status of a guest's flight."""
    return httpx.get(f"http://flights.hotel-partners.invalid/{flight}").text


@calls(fails("network", day="2026-12-01"), fails("network", day="2026-12-02"))
@mcp.tool()
def channel_manager(day: str) -> str:
    """Bookings from portals."""
    with urllib.request.urlopen(f"http://127.0.0.1:{CLOSED_PORT}/bookings?day={day}") as reply:
        return reply.read().decode()


@calls(works(city="Graz"), fails("timeout", city="Linz"), fails("upstream", city="Wels"))
@mcp.tool()
def local_events(city: str) -> str:
    """Events near the hotel."""
    if city == "Graz":
        return "Christmas market"
    try:
        reply = fetch("slow" if city == "Linz" else "503", timeout=0.3)
        reply.raise_for_status()
    except httpx.TimeoutException as error:
        raise ToolError(
            f"The events service took too long to answer ({type(error).__name__})"
        ) from error
    except httpx.HTTPStatusError as error:
        raise ToolError(f"Events service answered {error.response.status_code}") from error
    return reply.text


@calls(fails("network", booking=1))
@mcp.tool()
def charge_card(booking: int) -> str:
    """Charge the card of a booking."""
    url = UPSTREAM.replace("http:", "https:") + "/charge"
    with urllib.request.urlopen(url, context=ssl.create_default_context()) as reply:
        return reply.read().decode()


@calls(fails("auth", guest="Moreau"))
@mcp.tool()
def loyalty_points(guest: str) -> int:
    """Points of a guest in the loyalty programme."""
    reply = fetch("401")
    if reply.status_code == 401:
        raise ToolError("Loyalty programme rejected our API key (401 Unauthorized)")
    return reply.json()["points"]


@calls(fails("down", day="2026-12-05"), fails("down", day="2026-12-06"))
@mcp.tool()
def spa_slots(day: str) -> list:
    """Free appointments of the spa."""
    try:
        return httpx.post(f"http://127.0.0.1:{CLOSED_PORT}/rpc", json={"day": day}).json()
    except httpx.ConnectError:
        raise ToolError(
            "Spa scheduler is not running. Start the desktop application and open its API port."
        )


@calls(fails("network", route="airport"))
@mcp.tool()
def shuttle(route: str) -> str:
    """Next shuttle bus."""
    return fetch("reset").text


@calls(
    works(room=101, start="2026-12-01"),
    fails("conflict", room=102, start="2026-12-01"),
    fails("permission", room=204, start="2026-12-01"),
    fails("validation", room=101, start="2020-01-01"),
)
@mcp.tool()
def book_room(room: int, start: str, guests: int = Field(default=1, ge=1, le=4)) -> str:
    """Book a room."""
    if datetime.fromisoformat(start) < datetime(2026, 11, 1):
        raise ValueError("start lies in the past")
    if room == 102:
        raise ToolError("Room 102 is already taken on 2026-12-01")
    if room == 204:
        raise ToolError("The suite is bookable by managers only")
    return "Booked. Reference H-2201"


@calls(works(room=101), hides("crash", room=204), hides("not_found", room=900), works(room=102))
@mcp.tool()
def room_price(room: int) -> str:
    """Price of a room with tax."""
    try:
        if room not in ROOMS:
            return f"Error: room {room} not found"
        return f"{ROOMS[room]['price'] * 1.1:.2f}"
    except Exception as e:
        return f"Error: {e}"


@calls(works(city="Graz"), hides("upstream", city="Linz"), hides("network", city="Wels"))
@mcp.tool()
def weather(city: str) -> dict:
    """Weather for guests."""
    if city == "Graz":
        return {"ok": True, "forecast": "snow", "alerts": ["Error-prone road: A9 closed"]}
    try:
        if city == "Linz":
            fetch(500).raise_for_status()
        httpx.get(f"http://127.0.0.1:{CLOSED_PORT}/weather")
    except httpx.HTTPError as e:
        return {"ok": False, "error": str(e)}
    return {"ok": True}


@calls(hides("misconfig", printer="lobby"), works(printer="bar"))
@mcp.tool()
def printer_queue(printer: str) -> str:
    """Jobs of a printer."""
    if printer == "bar":
        return "no entries"
    done = subprocess.run("lpstat -o lobby", shell=True, capture_output=True, text=True)
    return done.stdout or f"Command failed: {done.stderr.strip()}"


@calls(works(passport="C4F8812"), works(passport="12"))
@mcp.tool()
def check_passport(passport: str) -> dict:
    """Check the form of a passport number."""
    valid = len(passport) > 5
    return {"valid": valid, "errors": [] if valid else ["too short", "no letter"]}


@calls(works(lines=2))
@mcp.tool()
def door_log(lines: int) -> str:
    """Last lines of the door controller's log."""
    return "07:01 ERROR controller 3: battery low\n07:02 WARN door 12: Traceback (most recent call last) suppressed"


also("cancel_everything", fails("unknown"))

if __name__ == "__main__":
    run(mcp.run)
