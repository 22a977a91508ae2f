"""Invoices: the Python SDK's server class, most exceptions caught and reworded by the author."""

import configparser
import functools
import json
import locale
import logging
import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import tomllib
import unicodedata
import xml.etree.ElementTree as ET
import zipfile
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from string import Template
from typing import Any, Optional
from zoneinfo import ZoneInfo

import requests
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from native import also, calls, run

try:
    from mcp.server.mcpserver import MCPServer as FastMCP
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    from mcp.server.fastmcp import FastMCP
    from mcp.server.fastmcp.exceptions import ToolError

logger = logging.getLogger("invoices")
mcp = FastMCP("invoices")
STORE = Path("store")


def prepare():
    STORE.mkdir(exist_ok=True)
    (STORE / "templates").mkdir(exist_ok=True)
    (STORE / "templates" / "invoice_en.txt").write_text("Invoice $number\n$customer owes $total\n")
    (STORE / "templates" / "invoice_it.txt").write_text("Fattura $numero\n$customer: $total\n")
    (STORE / "vat.toml").write_text("[AT]\nstandard = 20\n[DE]\nstandard = \n")
    (STORE / "dunning.ini").write_text("level1 = 14\n[levels]\nlevel2 = 28\n")
    (STORE / "ledger.xml").write_text("<ledger><entry id='1'>100</entry><entry id='2'></ledger>")
    (STORE / "2025.zip").write_bytes(b"PK\x05\x06 incomplete")
    (STORE / "counters.bin").write_bytes(b"\x01\x02\x03")
    (STORE / "convert.sh").write_text("#!/bin/sh\necho done\n")
    (STORE / "convert.sh").chmod(0o644)
    (STORE / "sign.sh").write_text(
        "#!/bin/sh\necho 'sign: private key store is locked' >&2\nexit 3\n"
    )
    (STORE / "sign.sh").chmod(0o755)
    (STORE / "export.csv").unlink(missing_ok=True)
    (STORE / "export.csv").symlink_to("/dev/full")
    (STORE / "sequence").unlink(missing_ok=True)
    (STORE / "sequence").symlink_to("/proc/sys/kernel/osrelease")
    (STORE / "ledger.db").unlink(missing_ok=True)
    with sqlite3.connect(STORE / "ledger.db") as db:
        db.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")


prepare()

INVOICES: dict[str, dict[str, Any]] = {
    "2026-001": {
        "customer": "Albrecht AG",
        "total": "1200.50",
        "state": "open",
        "lines": [{"text": "Design", "qty": 3}],
        "currency": "EUR",
    },
    "2026-002": {
        "customer": "Baird Ltd",
        "total": "80,00",
        "state": "paid",
        "lines": [],
        "currency": "GBP",
    },
    "2026-003": {
        "customer": None,
        "total": "15.00",
        "state": "draft",
        "lines": None,
        "currency": "XBT",
    },
}


class InvoiceError(Exception):
    pass


def get(number: str) -> dict[str, Any]:
    if number not in INVOICES:
        raise InvoiceError(f"There is no invoice numbered {number!r}.")
    return INVOICES[number]


def guarded(message):
    """Report any exception under a message of its own, as many servers do."""

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except InvoiceError as e:
                raise ToolError(str(e)) from e
            except Exception as e:
                raise ToolError(f"{message}: {e}") from e

        return wrapper

    return decorate


def logged(function):
    """Log any exception and hide it from the caller."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            logger.exception("unhandled error in %s", function.__name__)
            raise ToolError("An unexpected error occurred. Please contact support.") from None

    return wrapper


@calls(
    works(number="2026-001"),
    fails("not_found", number="1999-777"),
    works(number="2026-002"),
    fails("validation", num="2026-001"),
)
@mcp.tool()
@guarded("Could not load the invoice")
def get_invoice(number: str) -> dict:
    """One invoice."""
    return get(number)


@calls(
    works(number="2026-001"), fails("crash", number="2026-002"), fails("crash", number="2026-003")
)
@mcp.tool()
@guarded("Could not sum up the lines")
def average_line(number: str) -> float:
    """Average quantity of the lines."""
    lines = get(number)["lines"]
    return sum(line["qty"] for line in lines) / len(lines)


@calls(works(number="2026-001"), fails("crash", number="2026-002"), works(number="2026-003"))
@mcp.tool()
@guarded("Tax calculation failed")
def tax(number: str) -> str:
    """Tax of an invoice."""
    return str(Decimal(get(number)["total"]) * Decimal("0.2"))


@calls(works(number="2026-001"), fails("crash", number="2026-003"), works(number="2026-002"))
@mcp.tool()
@logged
def salutation(number: str) -> str:
    """Salutation of the customer."""
    return "Dear " + unicodedata.normalize("NFC", INVOICES[number]["customer"]).strip()


@calls(
    works(number="2026-001", language="en"),
    fails("misconfig", number="2026-001", language="de"),
    fails("crash", number="2026-001", language="it"),
    fails("validation", number="2026-001", language="klingon"),
)
@mcp.tool()
def render(number: str, language: str = "en") -> str:
    """Text of an invoice."""
    if language not in {"en", "de", "it"}:
        raise ToolError(f"language must be one of en, de, it (got {language})")
    file = STORE / "templates" / f"invoice_{language}.txt"
    if not file.exists():
        raise ToolError(f"Template {file.name} could not be loaded")
    invoice = get(number)
    return Template(file.read_text()).substitute(
        number=number, customer=invoice["customer"], total=invoice["total"]
    )


@calls(fails("misconfig", country="AT"), fails("misconfig", country="DE"))
@mcp.tool()
@guarded("VAT table")
def vat_rate(country: str) -> int:
    """VAT rate of a country."""
    return tomllib.loads((STORE / "vat.toml").read_text())[country]["standard"]


@calls(fails("misconfig", level=1), fails("misconfig", level=2))
@mcp.tool()
def dunning_days(level: int) -> int:
    """Days until a reminder."""
    settings = configparser.ConfigParser()
    settings.read(STORE / "dunning.ini")
    return settings.getint("levels", f"level{level}")


@calls(fails("misconfig", entry="1"))
@mcp.tool()
@guarded("ledger.xml is damaged")
def ledger_entry(entry: str) -> str:
    """An entry of the ledger."""
    return ET.parse(STORE / "ledger.xml").find(f"entry[@id='{entry}']").text


@calls(fails("misconfig", year=2025), works(year=2026))
@mcp.tool()
def archived(year: int) -> list:
    """Invoices in a year's archive."""
    path = STORE / f"{year}.zip"
    if not path.exists():
        return []
    try:
        return zipfile.ZipFile(path).namelist()
    except zipfile.BadZipFile as e:
        raise ToolError(f"Archive of {year} is unreadable ({e})")


@calls(fails("misconfig", series="A"))
@mcp.tool()
@guarded("reading counters")
def next_number(series: str) -> int:
    """Next number of a series."""
    return struct.unpack("<Q", (STORE / "counters.bin").read_bytes())[0]


@calls(fails("misconfig", number="2026-001"), fails("misconfig", number="2026-002"))
@mcp.tool()
def export_pdf(number: str) -> str:
    """Invoice as PDF."""
    if shutil.which("weasyprint") is None:
        raise ToolError(
            "weasyprint is required for PDF export but was not found on this host. Install it with `pip install weasyprint`."
        )
    return "done"


@calls(fails("misconfig", number="2026-001"))
@mcp.tool()
@guarded("PDF/A conversion")
def to_archive_format(number: str) -> str:
    """Convert an invoice for the archive."""
    done = subprocess.run(
        ["gs -dPDFA=2 -o out.pdf in.pdf"], shell=True, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()}")
    return "converted"


@calls(fails("misconfig", number="2026-001"))
@mcp.tool()
@guarded("Conversion script")
def to_xrechnung(number: str) -> str:
    """Convert an invoice to XRechnung."""
    return subprocess.check_output([str((STORE / "convert.sh").absolute()), number], text=True)


@calls(fails("misconfig", number="2026-001"))
@mcp.tool()
def sign(number: str) -> str:
    """Sign an invoice."""
    return subprocess.run(
        [str(STORE / "sign.sh"), number], check=True, capture_output=True, text=True
    ).stdout


@calls(works(sum="12.50"), fails("payload", sum="twelve"), works(sum="1e3"))
@mcp.tool()
def parse_amount(sum: str) -> str:
    """Normalise an amount."""
    try:
        return f"{Decimal(sum):.2f}"
    except InvalidOperation:
        raise ToolError(f"'{sum}' is not an amount")


@calls(fails("internal", quarter="Q3"), works(quarter=""), fails("internal", quarter="Q4"))
@mcp.tool()
@guarded("Export failed")
def export_ledger(quarter: str) -> str:
    """Write the ledger of a quarter."""
    if quarter:
        (STORE / "export.csv").write_text("id;amount\n" * 2000)
    return "nothing to export"


@calls(fails("misconfig"))
@mcp.tool()
@guarded("Sequence could not be advanced")
def advance_sequence() -> str:
    """Advance the sequence of numbers."""
    (STORE / "sequence").write_text("42")
    return "42"


@calls(works(amount=5), fails("internal", amount=7), works(amount=9))
@mcp.tool()
@guarded("Booking failed")
def book(amount: int) -> str:
    """Book an amount."""
    first = sqlite3.connect(STORE / "ledger.db", timeout=0.1, isolation_level=None)
    second = sqlite3.connect(STORE / "ledger.db", timeout=0.1)
    if amount == 7:
        first.execute("BEGIN EXCLUSIVE")
    try:
        with second:
            second.execute("INSERT INTO entries (amount) VALUES (?)", (amount,))
    finally:
        first.close()
        second.close()
    return "booked"


@calls(fails("crash", amount=5), works(amount=6))
@mcp.tool()
@guarded("Rounding entry")
def rounding_entry(amount: int) -> str:
    """Book a rounding difference."""
    with sqlite3.connect(STORE / "ledger.db") as db:
        db.execute("INSERT INTO entries (amount) VALUES (?)", (None if amount == 5 else amount,))
    return "booked"


@calls(fails("misconfig", month=11))
@mcp.tool()
@logged
def month_name(month: int) -> str:
    """Name of a month in the customer's language."""
    locale.setlocale(locale.LC_TIME, "de_CH.UTF-8")
    return datetime(2026, month, 1).strftime("%B")


@calls(fails("misconfig", number="2026-001", to="office@example.org"))
@mcp.tool()
def send_mail(number: str, to: str) -> str:
    """Send an invoice."""
    host = os.getenv("SMTP_HOST")
    if not host:
        raise ToolError(
            "Mail is not configured: set SMTP_HOST and SMTP_USER in the server's environment"
        )
    return host


@calls(fails("misconfig", number="2026-001"))
@mcp.tool()
def payment_link(number: str) -> str:
    """Link for an online payment."""
    key = os.environ.get("PAYMENTS_SECRET")
    if key is None:
        raise RuntimeError("PAYMENTS_SECRET missing")
    return key


@calls(
    fails("crash", number="2026-001"), works(number="2026-002"), fails("crash", number="2026-003")
)
@mcp.tool()
@guarded("internal")
def due_date(number: str) -> str:
    """Date when an invoice is due."""
    if number == "2026-002":
        return "2026-12-01"
    created = datetime(2026, 11, 1, tzinfo=ZoneInfo("UTC"))
    return str(
        created - datetime.fromtimestamp(0) if number == "2026-001" else created.replace(month=13)
    )


@calls(fails("crash", customer="Albrecht AG"), works(customer="Baird Ltd"))
@mcp.tool()
@logged
def reminder_level(customer: str) -> int:
    """Reminder level of a customer."""
    level = 2 if customer == "Baird Ltd" else 9
    if level > 3:
        raise AssertionError("reminder level out of sync with dunning table")
    return level


@calls(
    works(numbers=["2026-001"]),
    fails("crash", numbers=["2026-003"]),
    fails("validation", numbers="2026-001"),
)
@mcp.tool()
@guarded("merge")
def merge_lines(numbers: list[str]) -> list:
    """Lines of several invoices."""
    merged = []
    for number in numbers:
        merged.extend(get(number)["lines"])
    return merged


@calls(works(number="2026-001"), fails("crash", number="2026-003"))
@mcp.tool()
def currency_symbol(number: str) -> str:
    """Symbol of the currency."""
    match INVOICES[number]["currency"]:
        case "EUR":
            return "€"
        case "GBP":
            return "£"
    raise RuntimeError("unreachable")


@calls(
    works(currency="EUR"),
    fails("upstream", currency="CHF"),
    fails("upstream", currency="NOK"),
    fails("network", currency="SEK"),
    fails("quota", currency="DKK"),
)
@mcp.tool()
def convert(currency: str) -> str:
    """Rate of a currency."""
    if currency == "EUR":
        return "1"
    try:
        if currency == "SEK":
            return requests.get("http://fx.invoices.invalid/sek", timeout=2).text
        reply = requests.get(
            f"{UPSTREAM}/{ {'CHF': 'html', 'NOK': 504, 'DKK': 429}[currency] }", timeout=2
        )
        reply.raise_for_status()
        return reply.json()["rate"]
    except requests.exceptions.JSONDecodeError:
        raise ToolError(
            "The exchange rate provider sent something that is not JSON: <!DOCTYPE html>…"
        )
    except requests.exceptions.RequestException as e:
        raise ToolError(f"Exchange rates unavailable: {e}")


@calls(
    works(vat_id="ATU12345678"),
    fails("timeout", vat_id="DE999"),
    fails("upstream", vat_id="FR1"),
    works(vat_id="XX"),
)
@mcp.tool()
def check_vat_id(vat_id: str) -> dict:
    """Check a VAT number with the tax office."""
    if vat_id[:2] in {"AT", "XX"}:
        return {
            "vat_id": vat_id,
            "valid": vat_id[:2] == "AT",
            "message": "" if vat_id[:2] == "AT" else "INVALID_INPUT",
        }
    try:
        reply = requests.get(f"{UPSTREAM}/{'slow' if vat_id == 'DE999' else '503'}", timeout=0.3)
    except requests.Timeout:
        raise ToolError("VIES did not respond in time, try again later")
    raise ToolError(f"VIES: MS_UNAVAILABLE (HTTP {reply.status_code})")


@calls(fails("network", number="2026-001"), fails("network", number="2026-002"))
@mcp.tool()
@guarded("Peppol access point")
def send_peppol(number: str) -> str:
    """Send an invoice over Peppol."""
    with socket.create_connection(("127.0.0.1", CLOSED_PORT), timeout=1):
        return "sent"


@calls(fails("network", number="2026-001"))
@mcp.tool()
@logged
def bank_status(number: str) -> str:
    """Whether an invoice was paid."""
    return requests.get(UPSTREAM.replace("http:", "https:") + "/status", timeout=2).text


@calls(fails("down", query="open"), fails("down", query="paid"))
@mcp.tool()
def search_archive(query: str) -> list:
    """Search old invoices."""
    try:
        requests.get(f"http://localhost:{CLOSED_PORT}/_search", params={"q": query}, timeout=1)
    except requests.ConnectionError:
        raise ToolError("Search index is down")
    return []


@calls(fails("upstream", number="2026-001"), fails("upstream", number="2026-002"))
@mcp.tool()
@guarded("Accounting export")
def push_to_accounting(number: str) -> str:
    """Hand an invoice over to accounting."""
    reply = requests.get(f"{UPSTREAM}/truncated", timeout=2)
    return json.loads(reply.content)["id"]


@calls(fails("auth", number="2026-001"))
@mcp.tool()
@guarded("Factoring")
def sell_claim(number: str) -> str:
    """Sell a claim to the factoring bank."""
    reply = requests.get(f"{UPSTREAM}/403", timeout=2)
    reply.raise_for_status()
    return "sold"


@calls(
    works(number="2026-001"),
    fails("state", number="2026-002"),
    fails("state", number="2026-003"),
    fails("not_found", number="2027-001"),
)
@mcp.tool()
@guarded("Cancel")
def cancel_invoice(number: str) -> str:
    """Cancel an invoice."""
    invoice = get(number)
    if invoice["state"] == "paid":
        raise InvoiceError("Paid invoices can't be cancelled; issue a credit note instead.")
    if invoice["state"] == "draft":
        raise InvoiceError("A draft has not been issued yet")
    return "cancelled"


@calls(
    works(customer="Cole", total=10.0),
    fails("conflict", customer="Baird Ltd", total=80.0),
    fails("validation", customer="", total=1.0),
    fails("validation", customer="Cole", total=-4.0),
)
@mcp.tool()
def create_invoice(customer: str, total: float, note: Optional[str] = None) -> str:
    """Create an invoice."""
    if not customer.strip():
        raise ValueError("customer must not be empty")
    if total <= 0:
        raise ToolError(f"total must be positive, got {total}")
    if customer == "Baird Ltd":
        raise ToolError("Duplicate: an invoice over 80.00 for Baird Ltd was created today")
    return "2026-004"


@calls(fails("permission", number="2026-001"), fails("unsupported", number="2026-002"))
@mcp.tool()
def delete_invoice(number: str) -> str:
    """Delete an invoice."""
    if number == "2026-002":
        raise ToolError("Deleting is disabled in this edition")
    raise ToolError("You are not allowed to delete invoices (role: clerk)")


@calls(works(number="2026-001"), hides("crash", number="2026-003"), hides("not_found", number="1"))
@mcp.tool()
def summary(number: str) -> str:
    """Summary of an invoice."""
    if number not in INVOICES:
        return f"❌ Invoice {number} not found"
    try:
        invoice = INVOICES[number]
        return f"{invoice['customer'].title()}: {len(invoice['lines'])} lines"
    except AttributeError as exc:
        return f"❌ Unexpected error: {exc}"


@calls(
    works(month="2026-10"), hides("upstream", month="2026-11"), hides("misconfig", month="2026-12")
)
@mcp.tool()
def statement(month: str) -> dict:
    """Bank statement of a month."""
    if month == "2026-12":
        return {
            "status": "error",
            "message": "No such file or directory: 'statements/index.db'",
            "data": None,
        }
    if month == "2026-11":
        reply = requests.get(f"{UPSTREAM}/500", timeout=2)
        return {"status": "error", "code": reply.status_code, "message": reply.reason, "data": None}
    return {"status": "success", "message": "", "data": []}


@calls(hides("validation", day="yesterday"), works(day="2026-11-01"))
@mcp.tool()
def payments_on(day: str) -> str:
    """Payments of a day."""
    try:
        return f"0 payments on {datetime.strptime(day, '%Y-%m-%d'):%d.%m.%Y}"
    except ValueError as e:
        return f"Error: {e}"


@calls(works(number="2026-002"), works(number="2026-003"))
@mcp.tool()
def validate_invoice(number: str) -> dict:
    """Check an invoice against EN 16931."""
    errors = [] if number == "2026-002" else ["BT-44: buyer name missing", "BT-126: no line"]
    return {"conformant": not errors, "errorCount": len(errors), "errors": errors}


@calls(works())
@mcp.tool()
def recent_errors() -> str:
    """Errors that the import reported lately."""
    return "2026-11-20 import failed: unknown currency 'XBT'\n2026-11-21 no errors"


also("refund_invoice", fails("unknown", number="2026-001"))

if __name__ == "__main__":
    run(mcp.run)
