"""A city library in Python, with long error texts; the author rewords many exceptions."""

import base64
import collections
import configparser
import csv
import email
import importlib
import io
import json
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import unicodedata
import urllib.error
import urllib.request
import xml.etree.ElementTree
import zipfile

import httpx
import pymysql
import requests
from kit import CLOSED_PORT, UPSTREAM, Refused, fails, hides, tool, works

log = logging.getLogger("library")
BOOKS = {"b1": ("Solaris", 3), "b2": ("Momo", 0)}
CATALOGUE = sqlite3.connect(":memory:", check_same_thread=False)
CATALOGUE.execute("create table books (id text primary key, title text)")


@tool(fails("crash", shelf="N3"))
def shelf_contents(shelf: str) -> str:
    record = collections.namedtuple("Shelf", "code books")("N3", None)
    return ", ".join(record.books)


@tool(fails("crash", card="4711"))
def reader_balance(card: str) -> str:
    account = {"fees": None}
    return f"{account['fees']:.2f} Euro"


@tool(fails("crash", book="b1"))
def waiting_list(book: str) -> str:
    return [("Ann", 1)][3][0]


@tool(fails("crash", branch="West"))
def opening_hours(branch: str) -> str:
    try:
        return {"monday": "9-17"}["caturday"]
    except KeyError:
        log.exception("opening hours")
        raise


@tool(fails("crash", book="b2"))
def cover_image(book: str) -> str:
    return base64.b64decode("abc").decode()


@tool(fails("crash", count=3))
def new_arrivals(count: int) -> str:
    return bytes([0x93, 0x41, 0x94]).decode("utf-8")


@tool(fails("crash", reader="Ann"))
def reading_streak(reader: str) -> str:
    try:
        return json.dumps({"reader": reader, "days": {1, 2}})
    except TypeError as error:
        raise Refused(f"Sorry, reading_streak had a problem: {error}") from error


@tool(fails("crash", branch="East"))
def visitor_statistics(branch: str) -> str:
    return str(max([]))


@tool(fails("crash", year=2025))
def loans_by_year(year: int) -> str:
    raise NotImplementedError


@tool(fails("crash", book="b1"))
def summary_of(book: str) -> str:
    row = next(csv.DictReader(io.StringIO("id,titel\nb1,Solaris\n")))
    return row["title"]


@tool(fails("crash", card="4711"))
def renew_card(card: str) -> str:
    return unicodedata.name("\n")


@tool(fails("misconfig", branch="West"))
def branch_settings(branch: str) -> str:
    settings = configparser.ConfigParser()
    settings.read("branches.ini")
    return settings.get("branch:main", "phone")


@tool(fails("crash", week=46))
def event_calendar(week: int) -> str:
    return xml.etree.ElementTree.fromstring("<events><event></events>").tag


@tool(fails("crash", edition="spring"))
def newsletter(edition: str) -> str:
    with zipfile.ZipFile(io.BytesIO(b"not an archive")) as archive:
        return archive.namelist()[0]


@tool(fails("misconfig", book="b1"))
def loan_history(book: str) -> str:
    try:
        return str(CATALOGUE.execute("select * from loans where book = ?", [book]).fetchall())
    except sqlite3.Error as error:
        raise Refused(f"Database problem: {error}") from error


@tool(fails("misconfig", language="de"))
def subject_index(language: str) -> str:
    with open("indexes/subjects.de.idx", encoding="utf-8") as index:
        return index.read()


@tool(fails("misconfig", scan="s-12"))
def read_scan(scan: str) -> str:
    if shutil.which("tesseract-ocr-6") is None:
        raise Refused("tesseract-ocr-6 could not be located; text recognition is off on this host")
    return scan


@tool(fails("misconfig", book="b1"))
def audio_sample(book: str) -> str:
    try:
        return subprocess.check_output(["sox-ng", book, "-t", "wav", "-"], text=True)
    except OSError as error:
        raise Refused(f"audio_sample: {error}") from error


@tool(fails("misconfig", text="Guten Tag"))
def translate(text: str) -> str:
    return importlib.import_module("argostranslate.translate").translate(text, "de", "en")


@tool(fails("misconfig", isbn="9780156027601"))
def worldcat_entry(isbn: str) -> str:
    key = os.environ.get("WORLDCAT_WSKEY")
    if not key:
        raise Refused("Please define WORLDCAT_WSKEY before starting the server.")
    return key


@tool(fails("misconfig", book="b1"))
def print_spine(book: str) -> str:
    output = subprocess.run(["sh", "-c", "lp-spine --once"], capture_output=True, text=True)
    if output.returncode:
        raise RuntimeError(output.stderr.strip())
    return output.stdout


@tool(fails("misconfig", book="b2"))
def book_embedding(book: str) -> str:
    raise OSError("libcublas.so.13: cannot open shared object file: No such file or directory")


@tool(fails("misconfig", day="2026-11-01"))
def backup_catalogue(day: str) -> str:
    raise OSError(30, "Read-only file system", "/srv/library/backup.tmp")


@tool(fails("misconfig", reader="Ann"))
def mail_reminder(reader: str) -> str:
    raise Refused("No mail relay has been set up for this library, so nothing can be sent")


@tool(fails("network", isbn="9780156027601"))
def isbn_lookup(isbn: str) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{CLOSED_PORT}/isbn/{isbn}").text
    except httpx.HTTPError as error:
        raise Refused(f"ISBN service: {error}") from error


@tool(fails("network", author="Lem"))
def author_portrait(author: str) -> str:
    try:
        urllib.request.urlopen("http://portraits.town.invalid/lem.jpg", timeout=3)
    except urllib.error.URLError as error:
        raise Refused(f"Portrait of {author} unavailable ({error.reason})") from error
    return "portrait"


@tool(fails("timeout", title="Solaris"))
def interlibrary_search(title: str) -> str:
    try:
        return requests.get(f"{UPSTREAM}/slow", timeout=0.2).text
    except requests.Timeout as error:
        raise Refused("The partner libraries took too long to respond") from error


@tool(fails("upstream", article="x-1"))
def journal_article(article: str) -> str:
    reply = httpx.get(f"{UPSTREAM}/500")
    reply.raise_for_status()
    return reply.text


@tool(fails("upstream", query="robots"))
def discovery_search(query: str) -> str:
    reply = httpx.get(f"{UPSTREAM}/502")
    if reply.is_error:
        raise Refused(f"Discovery returned {reply.status_code} {reply.reason_phrase}")
    return reply.text


@tool(fails("upstream", card="4711"))
def fee_payment(card: str) -> str:
    body = httpx.get(f"{UPSTREAM}/truncated").text
    return str(json.loads(body))


@tool(fails("upstream", book="b1"))
def reviews(book: str) -> str:
    body = httpx.get(f"{UPSTREAM}/html").text
    try:
        return str(json.loads(body))
    except ValueError as error:
        raise Refused("Review service sent something that is not JSON") from error


@tool(fails("down", book="b1"))
def reserve_online(book: str) -> str:
    pymysql.connect(host="127.0.0.1", port=CLOSED_PORT, user="lib", connect_timeout=1)
    return "reserved"


@tool(fails("down", branch="West"))
def door_counter(branch: str) -> str:
    with socket.create_connection(("127.0.0.1", CLOSED_PORT), timeout=1):
        return "0"


@tool(fails("down", room="R2"))
def room_booking(room: str) -> str:
    raise Refused("BOOKING_SERVICE_UNAVAILABLE")


@tool(fails("down", query="maps"))
def archive_search(query: str) -> str:
    raise Refused("Requests to the archive are suspended by the circuit breaker")


@tool(fails("upstream", isbn="9780156027601"))
def publisher_stock(isbn: str) -> str:
    reply = httpx.get(f"{UPSTREAM}/503")
    raise RuntimeError(f"{reply.url}")


@tool(
    works(book="b1"),
    fails("not_found", book="b77"),
    fails("validation", book=[1]),
    fails("validation", boook="b1"),
)
def get_book(book: str) -> str:
    if not isinstance(book, str):
        raise Refused("book has to be text")
    if book not in BOOKS:
        raise Refused(f"I could not find a book with the id {book}")
    return BOOKS[book][0]


@tool(works(book="b1", days=7), fails("validation", book="b1", days=900))
def lend_book(book: str, days: int) -> str:
    if days > 60:
        raise Refused("Loans may last 60 days at the longest")
    return "lent"


@tool(fails("not_found", path="/data/uploads/thesis.docx"), fails("payload", path="/data"))
def import_document(path: str) -> str:
    if path == "/data":
        raise IsADirectoryError(21, "Is a directory", path)
    with open(path, encoding="utf-8") as document:
        return document.read()


@tool(
    works(statement="select count(*) from books"),
    fails("payload", statement="select count(* from books"),
    fails("payload", statement="select pages from books"),
)
def catalogue_sql(statement: str) -> str:
    try:
        return str(CATALOGUE.execute(statement).fetchall())
    except sqlite3.Error as error:
        raise Refused(f"SQL error: {error}") from error


@tool(works(card="4711", book="b1"), fails("state", card="4711", book="b2"))
def borrow(card: str, book: str) -> str:
    if BOOKS[book][1] == 0:
        raise Refused(f"All copies of {BOOKS[book][0]} are on loan")
    return "borrowed"


@tool(fails("auth", pin="0000"))
def sign_in(pin: str) -> str:
    raise Refused("That PIN is wrong")


@tool(fails("auth", list_id="l-3"))
def reading_list(list_id: str) -> str:
    reply = requests.get(f"{UPSTREAM}/401", timeout=2)
    reply.raise_for_status()
    return list_id


@tool(fails("quota", reader="Ann"))
def suggest_purchase(reader: str) -> str:
    raise Refused("You have already made three suggestions today; come back tomorrow")


@tool(works(pattern="^S"), fails("payload", pattern="(S"))
def match_titles(pattern: str) -> str:
    import re

    return str([title for title, _ in BOOKS.values() if re.search(pattern, title)])


@tool(fails("permission", card="4712"))
def reader_address(card: str) -> str:
    raise Refused("Addresses of other readers are confidential")


@tool(hides("upstream", query="sea"))
def map_search(query: str) -> str:
    return json.dumps(
        {"query": query, "hits": [], "error": {"code": 502, "message": "Bad Gateway"}}
    )


@tool(hides("crash", branch="West"))
def floor_plan(branch: str) -> str:
    return json.dumps({"status": "failed", "detail": "KeyError: 'levels'"})


@tool(hides("misconfig", book="b1"))
def read_aloud(book: str) -> str:
    return "I can't read this aloud: espeak-ng is missing on the server."


@tool(hides("not_found", author="Nobody"))
def books_by(author: str) -> str:
    return f"❌ Author {author!r} does not exist"


@tool(hides("network", feed="news"))
def news_feed(feed: str) -> str:
    return "Could not load the feed: [Errno -2] Name or service not known"


@tool(hides("timeout", book="b1"))
def price_check(book: str) -> str:
    return json.dumps(
        [
            {"shop": "A", "error": "timed out after 5 s"},
            {"shop": "B", "error": "timed out after 5 s"},
        ]
    )


@tool(hides("validation", isbn="12"))
def format_isbn(isbn: str) -> str:
    return "Invalid ISBN: expected 10 or 13 digits"


@tool(works(isbn="9780156027602"))
def check_isbn(isbn: str) -> str:
    return json.dumps({"isbn": isbn, "is_valid": False, "reason": "check digit should be 1"})


@tool(works(book="b2"))
def is_available(book: str) -> str:
    return json.dumps({"available": False, "message": "All copies are on loan until 4 December"})


@tool(works(branch="West"))
def damage_reports(branch: str) -> str:
    return json.dumps([{"id": 1, "status": "failed", "message": "Lift out of order"}])


@tool(works(text="Ein Haus"))
def spell_check(text: str) -> str:
    return "0 errors, 0 warnings"


@tool(works(title="Nothing"))
def find_title(title: str) -> str:
    return "No results."


@tool(works(day="2026-11-01"))
def server_log(day: str) -> str:
    return (
        "2026-11-01 09:12:44 ERROR mail relay refused the connection\n2026-11-01 09:13:00 INFO ok"
    )
