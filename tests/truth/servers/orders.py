"""A shop's orders: Python, terse errors, most exceptions left to the framework."""

import asyncio
import datetime
import json
import os
import sqlite3
import subprocess
import tempfile
import urllib.request
from pathlib import Path

import httpx
import pg8000.dbapi
import redis
import requests
from kit import CLOSED_PORT, UPSTREAM, Refused, fails, hides, tool, works

ORDERS = {"O-1": {"net": 40, "lines": [], "state": "open"}, "O-2": {"net": 15, "state": "closed"}}
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.execute("create table orders (id text, net real)")
FOLDER = Path(tempfile.mkdtemp(prefix="orders-"))


@tool(fails("crash", order="O-1"), fails("crash", order="O-2"))
def order_total(order: str) -> str:
    return str(ORDERS[order]["net"] + ORDERS[order]["vat"])


@tool(fails("crash", customer="C-7"))
def customer_summary(customer: str) -> str:
    found = {"C-1": "Ann"}.get(customer) if customer == "" else None
    return found.strip()


@tool(fails("crash", order="O-1"))
def last_shipment(order: str) -> str:
    return ORDERS[order]["lines"][-1]


@tool(fails("crash", month="2026-10"))
def reconcile_month(month: str) -> str:
    assert sum(order["net"] for order in ORDERS.values()) == 0
    return "balanced"


@tool(fails("crash", limit=5))
def recent_notes(limit: int) -> str:
    (FOLDER / "notes.txt").write_bytes(b"caf\xe9 closed\n" * 3)
    return (FOLDER / "notes.txt").read_text(encoding="utf-8")[:limit]


@tool(fails("crash", customer="C-1"))
def loyalty_points(customer: str) -> str:
    return 100 + customer


@tool(fails("crash", tier="gold"))
def discount_tiers(tier: str) -> str:
    try:
        return {"silver": "5 %"}["platinum"]
    except KeyError as error:
        raise Refused(f"Could not compute the tiers: {error}") from error


@tool(fails("crash", article="A-3"))
def price_history(article: str) -> str:
    return str(float("n/a"))


@tool(fails("crash", region="north"))
def fill_rate(region: str) -> str:
    shipped = []
    return str(len(shipped) / len(shipped))


@tool(fails("misconfig", city="Graz"))
def nearest_warehouse(city: str) -> str:
    return Path("data/warehouses.json").read_text(encoding="utf-8")


@tool(fails("misconfig", order="O-1"))
def order_events(order: str) -> str:
    return str(DATABASE.execute("select * from order_events where id = ?", [order]).fetchall())


@tool(fails("misconfig", order="O-1"))
def order_margin(order: str) -> str:
    return str(DATABASE.execute("select margin from orders where id = ?", [order]).fetchall())


@tool(fails("crash", article="A-3"))
def cached_article(article: str) -> str:
    (FOLDER / "cache.json").write_text('{"A-3": {"name": "Desk" "price": 4}}')
    return json.dumps(json.loads((FOLDER / "cache.json").read_text())[article])


@tool(fails("crash", category="desks"))
def category_tree(category: str) -> str:
    return category_tree(category)


@tool(fails("crash", order="O-2"))
def delivery_date(order: str) -> str:
    return str(datetime.datetime.strptime("31.12.26", "%Y-%m-%d"))


@tool(fails("crash", order="O-1"))
def split_lines(order: str) -> str:
    name, price = ["desk"]
    return name


@tool(fails("misconfig", order="O-1"))
def print_label(order: str) -> str:
    return subprocess.run(["zplprint", order], check=True, capture_output=True, text=True).stdout


@tool(fails("misconfig", order="O-1"))
def packing_slip(order: str) -> str:
    command = f"wkhtmltopdf --quiet slip-{order}.html -"
    return str(subprocess.run(command, shell=True, check=True, capture_output=True).stdout)


@tool(fails("misconfig", weeks=4))
def demand_forecast(weeks: int) -> str:
    import prophet

    return str(prophet.Prophet().predict(weeks))


@tool(fails("misconfig", order="O-1"))
def send_receipt(order: str) -> str:
    return os.environ["RECEIPT_SMTP_HOST"]


@tool(fails("misconfig", order="O-1"))
def payment_link(order: str) -> str:
    raise Refused("PAYGATE_SECRET is not set")


@tool(fails("misconfig", order="O-1"))
def carrier_quote(order: str) -> str:
    raise Refused("This deployment has no account with the carrier; ask whoever runs it to add one")


@tool(fails("misconfig", note="checked"))
def write_audit(note: str) -> str:
    raise PermissionError(13, "Permission denied", "/var/lib/orders/audit.log")


@tool(fails("misconfig", basket="desk,lamp"))
def recommend(basket: str) -> str:
    with open("/opt/orders/models/recommend-3.bin", "rb") as model:
        return str(model.read(4))


@tool(fails("network", currency="EUR"))
def exchange_rate(currency: str) -> str:
    return str(urllib.request.urlopen(f"http://127.0.0.1:{CLOSED_PORT}/{currency}").read())


@tool(fails("upstream", parcel="P-4"))
def parcel_status(parcel: str) -> str:
    reply = requests.get(f"{UPSTREAM}/503", timeout=2)
    reply.raise_for_status()
    return reply.text


@tool(fails("timeout", country="AT"))
def tax_rate(country: str) -> str:
    return httpx.get(f"{UPSTREAM}/slow", timeout=0.2).text


@tool(fails("network", address="Ring 1, Wien"))
def geocode(address: str) -> str:
    return requests.get("http://geo.orders.invalid/find", params={"q": address}, timeout=2).text


@tool(fails("down", article="A-3"))
def stock_level(article: str) -> str:
    return str(redis.Redis(port=CLOSED_PORT).get(article))


@tool(fails("upstream", supplier="S-1"))
def supplier_feed(supplier: str) -> str:
    return str(requests.get(f"{UPSTREAM}/html", timeout=2).json())


@tool(fails("down", order="O-1"))
def risk_score(order: str) -> str:
    raise Refused("circuit 'risk-scoring' is OPEN (5 of the last 5 calls did not complete)")


@tool(fails("network", parcel="P-4"))
def customs_file(parcel: str) -> str:
    return str(urllib.request.urlopen(f"{UPSTREAM}/reset").read())


@tool(fails("upstream", account="A-9"))
def bank_lines(account: str) -> str:
    raise Refused("bank gateway replied 502")


@tool(fails("down", year=2026))
def yearly_report(year: int) -> str:
    pg8000.dbapi.connect("reports", host="127.0.0.1", port=CLOSED_PORT)
    return "report"


@tool(fails("timeout", text="hello"))
async def notify_staff(text: str) -> str:
    await asyncio.wait_for(asyncio.sleep(9), 0.05)
    return text


@tool(
    works(order="O-1"),
    fails("not_found", order="O-999"),
    fails("validation", order={"id": 1}),
    fails("validation"),
)
def get_order(order: str) -> str:
    if not isinstance(order, str):
        raise Refused("order: expected a string")
    if order not in ORDERS:
        raise Refused(f"There is no order {order}")
    return json.dumps(ORDERS[order])


@tool(works(order="O-1", quantity=2), fails("validation", order="O-1", quantity=-4))
def set_quantity(order: str, quantity: int) -> str:
    if quantity < 1:
        raise Refused(f"quantity {quantity} is below 1")
    return "set"


@tool(
    fails("not_found", path="/home/ann/invoice-7.pdf"),
    fails("permission", path="/root/salaries.xlsx"),
)
def read_attachment(path: str) -> str:
    if path.startswith("/root"):
        raise PermissionError(13, "Permission denied", path)
    return Path(path).read_text(encoding="utf-8")


@tool(
    works(sql="select count(*) from orders"),
    fails("payload", sql="selec * from orders"),
    fails("payload", sql="select * from customers_2019"),
)
def run_query(sql: str) -> str:
    return str(DATABASE.execute(sql).fetchall())


@tool(works(order="O-1"), fails("state", order="O-2"))
def cancel_order(order: str) -> str:
    if ORDERS[order]["state"] == "closed":
        raise Refused(f"{order} was shipped on 3 November and can only be returned")
    return "cancelled"


@tool(fails("permission", customer="C-1"))
def delete_customer(customer: str) -> str:
    raise Refused("Only an administrator may delete customers")


@tool(works(document='{"lines": []}'), fails("payload", document="{lines: 3}"))
def parse_invoice(document: str) -> str:
    return str(json.loads(document))


@tool(works(formula="3*4"), fails("payload", formula="12/0"))
def evaluate_formula(formula: str) -> str:
    return str(eval(formula, {"__builtins__": {}}))


@tool(works(date="2026-11-02"), fails("validation", date="2 Nov"))
def orders_on(date: str) -> str:
    datetime.date.fromisoformat(date)
    return "no orders"


@tool(hides("down", catalog="main"))
def sync_catalog(catalog: str) -> str:
    return json.dumps({"ok": False, "reason": "catalog service refused the connection"})


@tool(hides("crash", report="weekly"))
def export_report(report: str) -> str:
    return "Export failed: 'NoneType' object is not subscriptable"


@tool(hides("not_found", supplier="S-9"))
def find_supplier(supplier: str) -> str:
    return f"Supplier {supplier} not found. Available: S-1, S-2, S-4"


@tool(hides("upstream", parcels=3))
def refresh_parcels(parcels: int) -> str:
    failed = {"status": "error", "error": "HTTP 503 from carrier"}
    return json.dumps(
        {"refreshed": 0, "results": [{"parcel": n, **failed} for n in range(parcels)]}
    )


@tool(hides("misconfig", month="2026-10"))
def render_chart(month: str) -> str:
    return json.dumps({"success": False, "message": "matplotlib is not installed"})


@tool(hides("not_found", order="O-77"))
def order_notes(order: str) -> str:
    return json.dumps({"data": {"result": {"isError": True, "text": f"no order {order}"}}})


@tool(works(number="ATU123"))
def validate_vat_number(number: str) -> str:
    return json.dumps({"valid": False, "errors": ["checksum of the last digit is wrong"]})


@tool(works(hours=24))
def list_errors(hours: int) -> str:
    entries = [{"time": "10:04", "level": "error", "message": "payment timed out"}]
    return json.dumps({"errors": entries, "total": 1})


@tool(works(address="Ring 1"))
def check_address(address: str) -> str:
    return "No errors found in the address."


@tool(works(text="sofa"))
def search_orders(text: str) -> str:
    return f"No orders match '{text}'."


@tool(works(template="Dear {nme}"))
def lint_template(template: str) -> str:
    return json.dumps({"passed": False, "issues": [{"line": 1, "message": "unknown field nme"}]})


@tool(works(topic="returns"))
def read_help(topic: str) -> str:
    return "Returns\n\nIf the label cannot be printed, the message 'Error: no printer' appears."
