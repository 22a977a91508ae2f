"""Payroll: the Python SDK's server class; the author raises, returns texts and forgets exceptions."""

import csv
import importlib
import json
import logging
import os
import shelve
import smtplib
import sqlite3
import ssl
import subprocess
import urllib.error
import urllib.request
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

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

log = logging.getLogger("payroll")
mcp = FastMCP("payroll")
HOME = Path("payroll_data")


def prepare():
    for folder in ("calendars", "absences", "templates", "archive", "inbox", "tax"):
        (HOME / folder).mkdir(parents=True, exist_ok=True)
    (HOME / "calendars/2026.txt").write_text("2026-01-01 New Year\n2026-05-01 Labour Day\n")
    (HOME / "calendars/2027.txt").write_text("2027-01-01 New Year\n2027-13-01 ???\n")
    (HOME / "absences/E-1001.csv").write_text("kind,days\nvacation,4\nsick,1.5\n")
    (HOME / "absences/E-1003.csv").write_text("kind,days\nvacation,n/a\n")
    (HOME / "rates.json").write_text('{"pension": 9.3, "care": 1.7,')
    (HOME / "templates/letter.txt").write_bytes(b"Sehr geehrte Damen und Herren, M\xfcnchen\n")
    (HOME / "inbox/june.csv").write_text("employee,hours\nE-1001,160\nE-1002,152\n")
    (HOME / "inbox/july.csv").write_text("employee,hours\nE-1001,lots\n")
    (HOME / "archive/spool").unlink(missing_ok=True)
    (HOME / "archive/spool").symlink_to("/dev/full")
    (HOME / "bonus_rules.yaml").mkdir(exist_ok=True)
    (HOME / "checksum").write_text("#!/bin/sh\nexit 0\n")
    (HOME / "checksum").chmod(0o640)
    for name in ("people.db", "people.db-journal"):
        (HOME / name).unlink(missing_ok=True)
    with sqlite3.connect(HOME / "people.db") as db:
        db.execute("CREATE TABLE people (id TEXT PRIMARY KEY, name TEXT, salary REAL)")
        db.execute("INSERT INTO people VALUES ('E-1001', 'Ines Falk', 5200)")


prepare()


class Grade(str, Enum):
    junior = "junior"
    senior = "senior"
    lead = "lead"


PEOPLE = {
    "E-1001": {"name": "Ines Falk", "salary": 5200, "hours": 40, "region": "HE", "children": 1},
    "E-1002": {"name": "Jo Marsh", "salary": 3100, "hours": 0, "region": "BY", "children": []},
    "E-1003": {"name": "Ko Sato", "salary": None, "hours": 20, "region": "XX"},
}
RUNS = {"2026-09": "paid", "2026-10": "approved", "2026-11": "open"}
CHURCH_TAX = {"HE": 0.09, "BE": 0.09}
Employee = Annotated[str, Field(pattern=r"^E-\d{4}$", description="number such as E-1001")]


def person(employee_id):
    try:
        return PEOPLE[employee_id]
    except KeyError:
        raise ToolError(f"Employee {employee_id} does not exist") from None


class Payslip(BaseModel):
    employee: str
    gross: float
    net: float


@calls(
    works(employee_id="E-1001"),
    fails("not_found", employee_id="E-4711"),
    fails("validation", employee_id="Falk"),
    fails("validation", id="E-1001"),
    works(employee_id="E-1002"),
)
@mcp.tool()
def get_employee(employee_id: Employee) -> str:
    """Master data of one employee."""
    return json.dumps(person(employee_id))


@calls(
    works(employee_id="E-1001"), fails("crash", employee_id="E-1003"), works(employee_id="E-1002")
)
@mcp.tool()
def yearly_gross(employee_id: str) -> str:
    """Salary of a year."""
    return f"{person(employee_id)['salary'] * 13:.2f}"


@calls(
    works(employee_id="E-1001"), fails("crash", employee_id="E-1002"), works(employee_id="E-1003")
)
@mcp.tool()
def hourly_rate(employee_id: str) -> str:
    """Hourly rate of an employee."""
    someone = person(employee_id)
    try:
        return f"{(someone['salary'] or 1000) / (someone['hours'] * 4.33):.2f}"
    except Exception as e:
        raise ToolError(f"Could not compute hourly rate: {e}") from e


@calls(
    works(employee_id="E-1001"),
    fails("crash", employee_id="E-1002"),
    fails("crash", employee_id="E-1003"),
)
@mcp.tool()
def church_tax(employee_id: str) -> str:
    """Church tax of an employee."""
    someone = person(employee_id)
    return str(someone["salary"] * CHURCH_TAX[someone["region"]])


@calls(fails("misconfig", gross=5200.0), fails("misconfig", gross=2100.0))
@mcp.tool()
def wage_tax(gross: float) -> str:
    """Wage tax of a gross salary."""
    table = json.loads((HOME / "tax/lohnsteuer_2026.json").read_text())
    return str(next(row["tax"] for row in table if row["from"] <= gross))


@calls(fails("misconfig", gross=3000.0), fails("misconfig", gross=10.0))
@mcp.tool()
def social_security(gross: float) -> str:
    """Contributions for a gross salary."""
    try:
        rates = json.load(open(HOME / "rates.json"))
    except ValueError as err:
        raise ToolError(f"rates.json: {err}")
    return str({key: gross * value / 100 for key, value in rates.items()})


@calls(fails("misconfig", employee_id="E-1001"), fails("misconfig", employee_id="E-1002"))
@mcp.tool()
def list_benefits(employee_id: str) -> str:
    """Benefits of an employee."""
    with sqlite3.connect(HOME / "people.db") as db:
        return str(db.execute("SELECT name FROM benefits WHERE id = ?", (employee_id,)).fetchall())


@calls(works(employee_id="E-1001"), fails("misconfig", employee_id="E-1002"))
@mcp.tool()
def bank_account(employee_id: str) -> str:
    """Bank account of an employee."""
    with sqlite3.connect(HOME / "people.db") as db:
        if employee_id == "E-1001":
            return "DE02 1203 0000 0000 2020 51"
        try:
            return str(
                db.execute("SELECT iban FROM people WHERE id = ?", (employee_id,)).fetchone()
            )
        except sqlite3.Error as e:
            raise ToolError(f"Database error: {e}")


@calls(fails("misconfig", employee_id="E-1001", month="2026-10"))
@mcp.tool()
def payslip_pdf(employee_id: str, month: str) -> str:
    """Payslip as PDF."""
    try:
        subprocess.run(["wkhtmltopdf", "-q", "slip.html", "slip.pdf"], check=True)
    except OSError as exc:
        raise ToolError(f"PDF generation failed: {exc}") from exc
    return "slip.pdf"


@calls(fails("misconfig", run_id="2026-10"), fails("misconfig", run_id="2026-09"))
@mcp.tool()
def verify_checksum(run_id: str) -> str:
    """Verify the files of a payroll run."""
    return subprocess.check_output([str((HOME / "checksum").resolve()), run_id], text=True)


@calls(
    works(file="june.csv"),
    fails("not_found", file="august.csv"),
    fails("payload", file="july.csv"),
    fails("permission", file="../rates.json"),
)
@mcp.tool()
def import_timesheet(file: str) -> str:
    """Import a timesheet from the inbox."""
    if ".." in file:
        raise ToolError("Access denied: path is outside the inbox")
    path = HOME / "inbox" / file
    if not path.is_file():
        raise ToolError(f"inbox/{file}: no such timesheet. Upload it first.")
    rows = list(csv.DictReader(path.open()))
    for number, row in enumerate(rows, 2):
        if not row["hours"].isdigit():
            raise ToolError(f"{file} line {number}: hours must be a number, found {row['hours']!r}")
    return f"{len(rows)} rows imported"


@calls(
    works(run_id="2026-11"),
    fails("state", run_id="2026-09"),
    fails("conflict", run_id="2026-10"),
    fails("not_found", run_id="2031-01"),
)
@mcp.tool()
def approve_run(run_id: str) -> str:
    """Approve a payroll run."""
    if run_id not in RUNS:
        raise ToolError(f"unknown payroll run {run_id}; known runs: {', '.join(RUNS)}")
    if RUNS[run_id] == "paid":
        raise ToolError("Run 2026-09 has already been paid out and is locked")
    if RUNS[run_id] == "approved":
        raise ToolError("409: run 2026-10 was approved by j.marsh in the meantime")
    return "approved"


@calls(fails("misconfig", run_id="2026-10"), fails("misconfig", run_id="2026-11"))
@mcp.tool()
def sepa_file(run_id: str) -> str:
    """Bank file of a payroll run."""
    return f"<CdtrId>{os.environ['SEPA_CREDITOR_ID']}</CdtrId>"


@calls(fails("misconfig", to="team@example.org"))
@mcp.tool()
def mail_payslips(to: str) -> str:
    """Mail all payslips."""
    host = os.getenv("PAYROLL_SMTP")
    if not host:
        raise ToolError("PAYROLL_SMTP not set")
    return host


@calls(
    works(insurer="AOK"),
    fails("upstream", insurer="TK"),
    fails("timeout", insurer="BARMER"),
    fails("network", insurer="DAK"),
    fails("network", insurer="HEK"),
    works(insurer="IKK"),
    fails("upstream", insurer="KKH"),
)
@mcp.tool()
async def insurance_rate(insurer: str) -> str:
    """Rate of a health insurer."""
    if insurer in {"AOK", "IKK"}:
        return "16.3"
    url = {
        "TK": f"{UPSTREAM}/502",
        "BARMER": f"{UPSTREAM}/slow",
        "DAK": f"http://127.0.0.1:{CLOSED_PORT}/rates",
        "HEK": "http://rates.hek.invalid/v1",
        "KKH": f"{UPSTREAM}/html",
    }[insurer]
    async with httpx.AsyncClient(timeout=0.4) as client:
        reply = await client.get(url)
        reply.raise_for_status()
        return str(reply.json()["rate"])


@calls(
    works(currency="CHF"),
    fails("quota", currency="USD"),
    fails("network", currency="PLN"),
    fails("upstream", currency="SEK"),
    works(currency="CHF"),
)
@mcp.tool()
def exchange_rate(currency: str) -> str:
    """Exchange rate of the central bank."""
    if currency == "CHF":
        return "0.94"
    url = {
        "USD": f"{UPSTREAM}/429",
        "SEK": f"{UPSTREAM}/500",
        "PLN": UPSTREAM.replace("http", "https"),
    }
    try:
        with urllib.request.urlopen(url[currency], timeout=1) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as e:
        if e.code == 429:
            raise ToolError("ECB: rate limit reached, retry in 60 s")
        raise ToolError(f"ECB answered {e.code} {e.reason}")
    except urllib.error.URLError as e:
        raise ToolError(f"ECB: {e.reason}")


@calls(fails("auth", run_id="2026-10"), fails("timeout", run_id="2026-09"), works(run_id="2026-11"))
@mcp.tool()
def submit_tax_return(run_id: str) -> str:
    """Send the wage tax return to the tax office."""
    if run_id == "2026-11":
        return "transfer ticket 7781"
    with httpx.Client(timeout=0.3) as client:
        try:
            code = client.get(f"{UPSTREAM}/{401 if run_id == '2026-10' else 'slow'}").status_code
        except httpx.TimeoutException:
            raise ToolError("ELSTER: no answer within 0.3 s, transmission aborted")
    raise ToolError(f"ELSTER rejected the transmission ({code}): certificate not accepted")


@calls(fails("down", run_id="2026-10"), fails("down", run_id="2026-11"))
@mcp.tool()
def push_to_ledger(run_id: str) -> str:
    """Post a run to the general ledger."""
    with smtplib.SMTP("127.0.0.1", CLOSED_PORT, timeout=1) as queue:
        return str(queue.noop())


@calls(fails("misconfig", employee_id="E-1001"), fails("misconfig", employee_id="E-1003"))
@mcp.tool()
def pension_statement(employee_id: str) -> str:
    """Statement of the company pension."""
    return importlib.import_module("actuarial_tables").statement(employee_id)


@calls(works(year=2026), fails("misconfig", year=2027), fails("not_found", year=1850))
@mcp.tool()
def working_days(year: int) -> str:
    """Working days of a year."""
    path = HOME / f"calendars/{year}.txt"
    if not path.exists():
        raise ToolError(f"No calendar for {year}")
    off = {date.fromisoformat(line[:10]) for line in path.read_text().splitlines()}
    days = (date(year, 1, 1) + timedelta(n) for n in range(365))
    return str(sum(day.weekday() < 5 and day not in off for day in days))


@calls(
    works(employee_id="E-1001"),
    fails("misconfig", employee_id="E-1003"),
    works(employee_id="E-1001"),
)
@mcp.tool()
def absences(employee_id: str) -> str:
    """Days of absence."""
    with open(HOME / f"absences/{employee_id}.csv") as file:
        return str(sum(float(row["days"]) for row in csv.DictReader(file)))


@calls(fails("misconfig", employee_id="E-1001"))
@mcp.tool()
def welcome_letter(employee_id: str) -> str:
    """Letter for new colleagues."""
    return (HOME / "templates/letter.txt").read_text(encoding="utf-8")


@calls(
    fails("misconfig", grade="senior"),
    fails("misconfig", grade="lead"),
    fails("validation", grade="boss"),
)
@mcp.tool()
def bonus(grade: Grade) -> str:
    """Bonus of a grade."""
    try:
        text = (HOME / "bonus_rules.yaml").read_text()
    except OSError as e:
        log.error("bonus: %s", e)
        raise ToolError("bonus rules unreadable")
    return text


@calls(works(run_id="2026-09"), fails("internal", run_id="2026-10"), works(run_id="2026-11"))
@mcp.tool()
def archive_run(run_id: str) -> str:
    """Archive a payroll run."""
    if run_id == "2026-10":
        try:
            (HOME / "archive/spool").write_text("x" * 90000)
        except OSError as e:
            raise ToolError(f"archive_run: {e.strerror} (errno {e.errno})")
    return "archived"


@calls(
    works(reason="resigned"),
    fails("crash", reason="dismissed"),
    fails("validation", reason="bored"),
)
@mcp.tool()
def final_settlement(reason: Literal["resigned", "dismissed"]) -> str:
    """Settle accounts at the end of a contract."""
    if reason == "dismissed":
        raise
    return "settled"


@calls(
    fails("crash", years=12),
    works(years=2),
    fails("crash", years=31),
    fails("validation", years=-3),
)
@mcp.tool()
def severance(years: int) -> str:
    """Severance pay in months of salary."""
    if years < 0:
        raise ToolError("years must be >= 0")
    months = {range(0, 10): 1, range(10, 40): None}
    value = next(value for key, value in months.items() if years in key)
    assert value
    return str(value)


@calls(works(employee_id="E-1001"), fails("crash", employee_id="E-1003"))
@mcp.tool()
def payslip(employee_id: str) -> Payslip:
    """Payslip of the month."""
    someone = PEOPLE[employee_id]
    return {"employee": someone["name"], "gross": someone["salary"], "net": 100}


@calls(
    works(employee_id="E-1001", amount=5300),
    fails("validation", employee_id="E-1001", amount=-1),
    fails("validation", employee_id="E-1001", amount="a lot"),
    fails("permission", employee_id="E-1002", amount=9000),
    fails("state", employee_id="E-1003", amount=3000),
)
@mcp.tool()
def set_salary(employee_id: str, amount: float) -> str:
    """Change a salary."""
    if amount <= 0:
        raise ToolError("A salary can't be negative or zero.")
    if amount > 8000:
        raise ToolError("Raises above 20 % need the approval of HR; you're signed in as clerk.")
    if PEOPLE[employee_id]["salary"] is None:
        raise ToolError("Contract of Ko Sato is on hold. Reactivate it before changing the salary.")
    return "ok"


@calls(works(run_id="2026-10", format="csv"), fails("unsupported", run_id="2026-10", format="xlsx"))
@mcp.tool()
def export_run(run_id: str, format: str) -> str:
    """Export a run."""
    if format != "csv":
        raise NotImplementedError(f"format {format} is not supported")
    return "employee;net"


@calls(fails("internal"), fails("internal"), works(force=True))
@mcp.tool()
def recalculate(force: bool = False) -> str:
    """Recalculate the open run."""
    if force:
        return "recalculated"
    raise ToolError("Calculation engine is in an inconsistent state (code PX-13)")


@calls(works(children=2), fails("crash", children=0))
@mcp.tool()
def child_allowance(children: int) -> str:
    """Child allowance."""
    amounts = [250] * children
    return f"first {amounts[0]}, total {sum(amounts)}"


@calls(
    works(employee_id="E-1001"),
    hides("crash", employee_id="E-1003"),
    hides("not_found", employee_id="E-0000"),
    works(employee_id="E-1001"),
)
@mcp.tool()
def net_salary(employee_id: str) -> dict:
    """Net salary."""
    if employee_id not in PEOPLE:
        return {"success": False, "error": f"no employee with id {employee_id}"}
    try:
        return {"success": True, "net": round(PEOPLE[employee_id]["salary"] * 0.6, 2)}
    except Exception as e:
        return {"success": False, "error": str(e)}


@calls(hides("down", query="open items"), hides("misconfig", query="sick notes"), works(query="x"))
@mcp.tool()
def search_documents(query: str) -> str:
    """Search the document store."""
    if query == "x":
        return "0 documents match 'x'"
    try:
        if query == "sick notes":
            shelve.open(str(HOME / "missing/index"), "r")
        httpx.get(f"http://127.0.0.1:{CLOSED_PORT}/search")
    except httpx.HTTPError:
        return "⚠️ Document store is not running. Nothing was searched."
    except Exception as e:
        return f"⚠️ Search failed: {e}"
    return "[]"


@calls(
    hides("upstream", month="2026-10"), works(month="2026-09"), hides("timeout", month="2026-11")
)
@mcp.tool()
def bookings(month: str) -> str:
    """Bookings of the tax adviser."""
    if month == "2026-09":
        return "No errors. 14 bookings."
    try:
        reply = httpx.get(UPSTREAM + ("/503" if month == "2026-10" else "/slow"), timeout=0.3)
        return f"Failed to fetch bookings. Status: {reply.status_code}"
    except Exception as e:
        return f"Failed to fetch bookings. {type(e).__name__}: {e}"


@calls(hides("validation", date_from="2026-31-01"), works(date_from="2026-01-31"))
@mcp.tool()
def hires_since(date_from: str) -> str:
    """New colleagues since a date."""
    try:
        date.fromisoformat(date_from)
    except ValueError:
        return "Invalid date. Please use YYYY-MM-DD."
    return "Nobody was hired since then."


@calls(works(iban="DE02120300000000202051"), works(iban="DE00 0000"))
@mcp.tool()
def check_iban(iban: str) -> dict:
    """Check an IBAN."""
    good = iban.startswith("DE02")
    return {"iban": iban, "valid": good, "errors": [] if good else ["checksum mismatch"]}


@calls(works(name="Nemo"), works(name="Falk"))
@mcp.tool()
def find_employee(name: str) -> list[str]:
    """Find employees by name."""
    return [key for key, value in PEOPLE.items() if name in value["name"]]


@calls(works())
@mcp.tool()
def import_log() -> str:
    """Log of the last imports."""
    return "08:00 june.csv imported\n08:05 ERROR july.csv line 2: hours is not a number\n08:06 connection to bank refused, retried, ok"


@calls(works(ids=["E-1001"]), hides("misconfig", ids=["E-1002", "E-1003"]))
@mcp.tool()
def create_letters(ids: list[str]) -> dict:
    """Letters for several employees."""
    results = []
    for employee_id in ids:
        if employee_id == "E-1001":
            results.append({"id": employee_id, "status": "created"})
            continue
        try:
            (HOME / "templates/raise_2026.odt").read_bytes()
        except OSError as e:
            results.append({"id": employee_id, "status": "failed", "reason": str(e)})
    return {"created": sum(r["status"] == "created" for r in results), "results": results}


@calls(works(days=7), hides("down", days=30), works(days=7))
@mcp.tool()
def sync_calendar(days: int) -> list[str]:
    """Copy absences into the calendar."""
    lines = [f"Syncing {days} days"]
    try:
        if days > 7:
            httpx.get(f"http://127.0.0.1:{CLOSED_PORT}/dav", timeout=1)
        lines.append("3 events written")
    except httpx.HTTPError as e:
        lines.append(f"Sync failed: calendar server unreachable ({e})")
    return lines


@calls(
    works(employee_id="E-1001"),
    hides("permission", employee_id="E-1002"),
    hides("crash", employee_id="E-1003"),
)
@mcp.tool()
def salary_history(employee_id: str) -> str:
    """How a salary changed."""
    if employee_id == "E-1002":
        return "Sorry, you may only see the salary history of people in your own department."
    try:
        return f"2025: {person(employee_id)['salary'] - 200}"
    except Exception as e:
        return json.dumps({"error": type(e).__name__, "args": list(e.args)})


@calls(works(code="R03"), works(code="R99"))
@mcp.tool()
def explain_return_code(code: str) -> str:
    """What a return code of the bank means."""
    return {
        "R03": "R03: the bank could not find the account. The payment failed and was returned."
    }.get(code, f"{code} is reserved.")


@calls(works(employee_id="E-1001"), works(employee_id="E-1002"))
@mcp.tool()
def is_insured(employee_id: str) -> dict:
    """Whether an employee is insured."""
    return {
        "insured": employee_id == "E-1001",
        "reason": None if employee_id == "E-1001" else "hours below minimum",
    }


@calls(works(user="falk"))
@mcp.tool()
def failed_logins(user: str) -> dict:
    """Failed logins of a user."""
    return {"user": user, "failed": 3, "last_error": "invalid password"}


also("delete_employee", fails("unknown", employee_id="E-1001"))

if __name__ == "__main__":
    run(mcp.run)
