"""What the clients ask of each server: one function a trace, a list of steps for each session.

The work is ordinary, and so are its mistakes: a file that is not there, a branch that exists
already, a missing argument, a query with a typo. Sessions of one server differ in what they do
(seeded by their number) as one user's days differ.
"""
# ruff: noqa: INP001 - beside a script, no package

import dataclasses
import random
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """One request. `method` is the protocol's; `name` is a tool, a prompt or a resource's URI."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    method: str = "tools/call"
    together: bool = False
    """Do not wait for the answer before the next step."""
    task: bool = False
    """Ask for a task (revision 2025-11-25) and follow it to its end."""
    timeout: float | None = None
    """Seconds after which the client gives up (its SDK then says `cancelled`, with a reason)."""
    cancel_after: float | None = None
    """Seconds after which the user presses stop."""


def call(tool: str, /, **arguments: Any) -> Step:
    """Call a tool and wait."""
    return Step(tool, arguments)


def started(tool: str, /, **arguments: Any) -> Step:
    """Call a tool and go on at once."""
    return Step(tool, arguments, together=True)


@dataclass(frozen=True)
class Session:
    """What one session starts from: its folder, its number, its dice."""

    folder: Path
    number: int
    dice: random.Random

    def some(self, steps: list[Step], low: int, high: int) -> list[Step]:
        """Between `low` and `high` of these steps, in an order of the session's own."""
        return self.dice.sample(steps, k=min(len(steps), self.dice.randint(low, high)))


def git(session: Session) -> list[Step]:
    """A day in a repository; a path that is none, a revision that is none, a branch twice."""
    repo = session.folder / "notes"
    run = ["git", "-c", "init.defaultBranch=main", "-c", "user.name=Demo"]
    run += ["-c", "user.email=demo@example.com"]
    subprocess.run([*run, "init", "-q", str(repo)], check=True)
    for key, value in {"user.name": "Demo", "user.email": "demo@example.com"}.items():
        subprocess.run(["git", "-C", str(repo), "config", key, value], check=True)
    for number in range(3):
        (repo / "todo.md").write_text("".join(f"- item {n}\n" for n in range(number + 1)))
        subprocess.run(["git", "-C", str(repo), "add", "."], check=True)
        subprocess.run([*run, "-C", str(repo), "commit", "-qm", f"Item {number}"], check=True)
    (repo / "todo.md").write_text("- item 0\n- ERROR handling: decide\n")
    (repo / "draft.md").write_text("# Draft\n")
    at = str(repo)
    branch = f"topic-{session.number}"
    right = [
        call("git_status", repo_path=at),
        call("git_diff_unstaged", repo_path=at),
        call("git_diff_unstaged", repo_path=at, context_lines=1),
        call("git_log", repo_path=at, max_count=2),
        call("git_log", repo_path=at, start_timestamp="1 week ago"),
        call("git_show", repo_path=at, revision="HEAD"),
        call("git_show", repo_path=at, revision="HEAD~1"),
        call("git_diff", repo_path=at, target="HEAD~1"),
        call("git_branch", repo_path=at, branch_type="local"),
    ]
    wrong = [
        call("git_show", repo_path=at, revision="HEAD~99"),
        call("git_show", repo_path=at, revision="nosuch"),
        call("git_diff", repo_path=at, target="release/9"),
        call("git_checkout", repo_path=at, branch_name="no-such-branch"),
        call("git_status", repo_path=str(session.folder / "elsewhere")),
        call("git_status", repo_path=str(session.folder)),
        call("git_log", max_count=5),
        call("git_add", repo_path=at, files="todo.md"),
        call("git_branch", repo_path=at, branch_type="everything"),
        call("git_add", repo_path=at, files=["missing.md"]),
        call("git_push", repo_path=at),
        call("git_create_branch", repo_path=at, branch_name="main"),
    ]
    return [
        Step("", method="tools/list"),
        *session.some(right, 5, 8),
        *session.some(wrong, 1, 4),
        call("git_add", repo_path=at, files=["todo.md", "draft.md"]),
        call("git_diff_staged", repo_path=at),
        call("git_commit", repo_path=at, message=f"Day {session.number}"),
        call("git_create_branch", repo_path=at, branch_name=branch),
        call("git_checkout", repo_path=at, branch_name=branch),
        *session.some(right, 2, 4),
    ]


def time(session: Session) -> list[Step]:
    """Clocks and conversions; from the ninth session on, a cancel that races the answer."""
    zones = ["Europe/Berlin", "Asia/Tokyo", "America/New_York", "UTC", "Australia/Sydney"]
    some = session.dice.sample(zones, 3)
    right = [call("get_current_time", timezone=zone) for zone in zones] + [
        call("convert_time", source_timezone=some[0], time="09:30", target_timezone=zone)
        for zone in some[1:]
    ]
    wrong = [
        call("get_current_time", timezone="Mars/Olympus"),
        call("get_current_time"),
        call("convert_time", source_timezone="UTC", time="25:61", target_timezone="Asia/Tokyo"),
        call("convert_time", source_timezone="UTC", time="noon", target_timezone="Asia/Tokyo"),
        call("convert_time", source_timezone="Berlin", time="09:30", target_timezone="UTC"),
        call("get_time", timezone="UTC"),
    ]
    steps = [Step("", method="tools/list"), *session.some(right, 4, 7), *session.some(wrong, 1, 3)]
    if session.number > 8:
        raced = Step("get_current_time", {"timezone": "UTC"}, together=True, cancel_after=0.002)
        steps += [raced, *[started("get_current_time", timezone=zone) for zone in zones]]
    return steps


def sqlite(session: Session) -> list[Step]:
    """A shop's database behind a server that reports failures as ordinary text."""
    with sqlite3.connect(session.folder / "shop.db") as shop:
        shop.execute("create table orders (id integer primary key, item text, price real)")
        shop.executemany(
            "insert into orders (item, price) values (?, ?)",
            [("lamp", 20.5), ("desk", 149.0), ("chair", 80.0), ("Error: not really", 1.0)],
        )
    shop.close()
    right = [
        call("list_tables"),
        call("describe_table", table_name="orders"),
        call("read_query", query="select item, price from orders where price > 50"),
        call("read_query", query="select count(*) as orders, sum(price) as total from orders"),
        call("read_query", query="select * from orders where item like 'Error%'"),
        call("read_query", query="select * from orders where id = 999"),
        call("write_query", query="insert into orders (item, price) values ('rug', 60)"),
        call("write_query", query="update orders set price = price * 1.1 where item = 'desk'"),
        call("append_insight", insight="Desks make half of the turnover."),
        Step("memo://insights", method="resources/read"),
    ]
    wrong = [
        call("read_query", query="select colour from orders"),
        call("read_query", query="select * from invoices"),
        call("read_query", query="selec * from orders"),
        call("read_query", query="delete from orders"),
        call("write_query", query="select 1"),
        call("write_query", query="insert into orders (id, item) values (1, 'twice')"),
        call("create_table", query="create table orders (id integer)"),
        call("read_query"),
        call("describe_table"),
        call("drop_table", table_name="orders"),
        Step("memo://nothing", method="resources/read"),
        Step("mcp-demo", method="prompts/get"),
    ]
    return [
        Step("", method="tools/list"),
        *session.some(right, 5, 9),
        *session.some(wrong, 2, 4),
        *session.some(right, 1, 3),
    ]


def everything(session: Session) -> list[Step]:
    """Every feature of the protocol: progress, questions back to the client, links, pictures."""
    long = {"duration": 0.4, "steps": 4}
    steps = [
        Step("", method="tools/list"),
        Step("", method="resources/list"),
        Step("", method="prompts/list"),
        call("echo", message="Grüße, 世界"),
        call("get-sum", a=2, b=40),
        call("get-sum", a="two", b=40),
        call("get-sum", a=2),
        call("add", a=1, b=2),
        call("get-structured-content", location="Chicago"),
        call("get-structured-content", location="Atlantis"),
        call("get-annotated-message", messageType="error", includeImage=True),
        call("get-tiny-image"),
        call("get-resource-links", count=3),
        call("get-resource-reference", resourceType="Text", resourceId=1),
        call("get-resource-reference", resourceType="Text", resourceId=-1),
        call("trigger-long-running-operation", **long),
        Step("demo://resource/dynamic/text/1", method="resources/read"),
        Step("demo://resource/dynamic/text/none", method="resources/read"),
        Step("nothing://here", method="resources/read"),
        Step("simple-prompt", method="prompts/get"),
        Step("args-prompt", {"city": "Paris"}, method="prompts/get"),
        Step("no-such-prompt", method="prompts/get"),
        call("trigger-sampling-request", prompt="A word for morning", maxTokens=20),
        call("trigger-elicitation-request"),
        call("get-roots-list"),
    ]
    steps = [*steps[:3], *session.some(steps[3:], 14, 22)]
    slow = {"duration": 2.5, "steps": 5}
    if session.number % 3 == 0:
        steps.append(Step("trigger-long-running-operation", slow, timeout=0.7))
    if session.number % 3 == 1:
        steps.append(Step("trigger-long-running-operation", slow, cancel_after=0.6))
    if session.number % 3 == 2:
        steps += [
            started("trigger-long-running-operation", duration=seconds, steps=1)
            for seconds in (0.6, 0.3)
        ]
        steps += [started("echo", message="first"), started("get-sum", a=1, b=1)]
    return steps


def tasks(session: Session) -> list[Step]:
    """Long work as tasks: call, poll, fetch; and a task whose arguments are missing."""
    topic = ["tides", "bees", "glass"][session.number % 3]
    research = Step("simulate-research-query", {"topic": topic}, task=True)
    return [
        Step("", method="tools/list"),
        call("echo", message="before"),
        research,
        dataclasses.replace(research, arguments={}),
        call("echo", message="after"),
    ]


def filesystem(session: Session) -> list[Step]:
    """Reading, writing and editing under one folder, and reaching out of it."""
    files = session.folder / "files"
    (files / "plans").mkdir(parents=True)
    (files / "readme.md").write_text("# Read me\n\nErrors and failures are explained below.\n")
    (files / "app.log").write_text("INFO started\nERROR cannot connect to db:5432\nINFO done\n")
    (files / "plans" / "2026.md").write_text("- write\n- record\n- score\n")
    at = str(files)
    right = [
        call("read_text_file", path=f"{at}/readme.md"),
        call("read_text_file", path=f"{at}/app.log", tail=2),
        call("list_directory", path=at),
        call("directory_tree", path=at),
        call("search_files", path=at, pattern="**/*.md"),
        call("get_file_info", path=f"{at}/app.log"),
        call("list_allowed_directories"),
        call("write_file", path=f"{at}/new.txt", content="hello\n"),
        call("create_directory", path=f"{at}/plans/next"),
        call("list_directory_with_sizes", path=at, sortBy="size"),
        call(
            "edit_file", path=f"{at}/readme.md", edits=[{"oldText": "# Read me", "newText": "# Hi"}]
        ),
    ]
    wrong = [
        call("read_text_file", path=f"{at}/nope.txt"),
        call("read_text_file", path="/etc/passwd"),
        call("read_text_file", path=f"{at}/readme.md", head=1, tail=1),
        call("read_text_file"),
        call("list_directory", path=f"{at}/readme.md"),
        call("write_file", path="/etc/demo.txt", content="x"),
        call("write_file", path=f"{at}/no/such/folder/x.txt", content="x"),
        call("move_file", source=f"{at}/nope.txt", destination=f"{at}/b.txt"),
        call(
            "edit_file",
            path=f"{at}/app.log",
            edits=[{"oldText": "never written", "newText": "x"}],
        ),
        call("read_multiple_files", paths=[f"{at}/readme.md", f"{at}/nope.txt"]),
        call("delete_file", path=f"{at}/app.log"),
    ]
    steps = [Step("", method="tools/list"), *session.some(right, 6, 10), *session.some(wrong, 1, 4)]
    if session.number == 12:  # its server has 24 MB of heap: see record.py
        (files / "big.log").write_text("INFO nothing happened\n" * 2_000_000)
        steps += [started("read_text_file", path=f"{at}/big.log") for _ in range(3)]
        steps += [started("list_directory", path=at), started("directory_tree", path=at)]
    return steps


def commands(session: Session) -> list[Step]:
    """Shell commands; a pipe closed early takes the server down with calls in flight."""
    (session.folder / "app.log").write_text("INFO started\nERROR lost\nINFO done\n")
    at = str(session.folder)
    right = [
        call("run_command", command="grep -c ERROR app.log", workdir=at),
        call("run_command", command="wc -l app.log", workdir=at),
        call("run_command", command="seq 1 5"),
        call("run_command", command="sort -r", stdin="a\nb\n"),
        call("run_command", command="echo '0 errors, 0 failures'"),
        call("run_command", command="echo careful >&2"),
    ]
    wrong = [
        call("run_command", command="cat nope.txt", workdir=at),
        call("run_command", command="grep zzzz app.log", workdir=at),
        call("run_command", command="exit 7"),
        call("run_command", command="no-such-program --help"),
        call("run_command", command="ls", workdir=f"{at}/nowhere"),
        call("run_command", command="kill -9 $$"),
        call("run_command"),
        call("run_script", script="true"),
    ]
    steps = [Step("", method="tools/list"), *session.some(right, 4, 6), *session.some(wrong, 2, 5)]
    if session.number in {2, 5}:
        steps.append(Step("run_command", {"command": "sleep 3"}, timeout=0.5))
        steps.append(call("run_command", command="echo after the timeout"))
    if session.number in {3, 6}:
        steps += [started("run_command", command=f"sleep {n}") for n in (2, 3)]
        steps.append(started("run_command", command="true", stdin="x" * 200_000))
        steps += [started("run_command", command="echo never heard")]
    return steps


def excel(session: Session) -> list[Step]:
    """A workbook that grows; a sheet that is none, a range that is none."""
    book = str(session.folder / "sales.xlsx")
    data = {"fileAbsolutePath": book, "sheetName": "Sales"}
    rows = [["item", "price"], *[[f"item {n}", n * 1.5] for n in range(1, 5)]]
    write = call("excel_write_to_sheet", **data, newSheet=True, range="A1:B5", values=rows)
    right = [
        call("excel_describe_sheets", fileAbsolutePath=book),
        call("excel_read_sheet", **data),
        call("excel_read_sheet", **data, range="A1:B2"),
        call("excel_write_to_sheet", **data, newSheet=False, range="C1:C1", values=[["sum"]]),
        call("excel_copy_sheet", fileAbsolutePath=book, srcSheetName="Sales", dstSheetName="Copy"),
        call("excel_create_table", **data, range="A1:B5", tableName="Prices"),
    ]
    wrong = [
        call("excel_read_sheet", fileAbsolutePath=book, sheetName="Costs"),
        call("excel_read_sheet", **data, range="B9:A1"),
        call("excel_read_sheet", **data, range="everything"),
        call("excel_describe_sheets", fileAbsolutePath=str(session.folder / "none.xlsx")),
        call("excel_describe_sheets", fileAbsolutePath="sales.xlsx"),
        call("excel_describe_sheets"),
        call("excel_copy_sheet", fileAbsolutePath=book, srcSheetName="Costs", dstSheetName="X"),
        call("excel_write_to_sheet", **data, newSheet=False, range="A1:B2", values=[[1]]),
        call("excel_delete_sheet", **data),
    ]
    _empty_workbook(Path(book))
    first = [call("excel_describe_sheets", fileAbsolutePath=book), write]
    return [
        Step("", method="tools/list"),
        *first,
        *session.some(right, 4, 6),
        *session.some(wrong, 2, 5),
    ]


def _empty_workbook(path: Path) -> None:
    """The least that spreadsheet programs open: one empty sheet."""
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    sheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{sheet}" xmlns:r="{office}">'
        '<sheets><sheet name="Start" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="sheet1.xml"/>'
        "</Relationships>",
        "xl/sheet1.xml": f'<worksheet xmlns="{sheet}"><sheetData/></worksheet>',
    }
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(name, head + text)


def memory(session: Session) -> list[Step]:
    """One call each: the client is a command line that opens a session for every question."""
    lamp = {"name": "Lamp", "entityType": "thing", "observations": ["is yellow"]}
    asked = [
        Step("", method="tools/list"),
        call("create_entities", entities=[lamp]),
        call("search_nodes", query="yellow"),
        call("open_nodes", names=["Lamp", "Nobody"]),
        call("add_observations", observations=[{"entityName": "Nobody", "contents": ["x"]}]),
        call("read_graph"),
        call("search_nodes"),
        call("forget_everything"),
    ]
    return [asked[(session.number - 1) % len(asked)]]


def excel_http(session: Session) -> list[Step]:
    """Another server for workbooks; twice, a write that is too long for the user's patience."""
    book = f"{session.folder}/sales.xlsx"
    sales = {"path": book, "sheet": "Sales"}
    rows = [["item", "price"], *[[f"item {n}", n * 1.5] for n in range(1, 5)]]
    right = [
        call("read_range", **sales),
        call("read_range", **sales, range="A1:B2"),
        call("describe_workbook", path=book),
        call("describe_sheet", **sales),
        call("write_range", **sales, at="C1", rows=[["sum"], ["=SUM(B2:B5)"]]),
        call("find_cells", path=book, query="item 3"),
        call("find_cells", path=book, query="no such thing"),
        call("sort_range", **sales, range="A1:B5", sort_by=[{"column": "price"}], has_header=True),
        call("list_workbooks", directory=str(session.folder)),
        call("create_sheet", path=book, new_name="Notes"),
    ]
    wrong = [
        call("read_range", path=book, sheet="Costs"),
        call("read_range", path=f"{session.folder}/none.xlsx", sheet="Sales"),
        call("read_range", path="/etc/passwd", sheet="Sales"),
        call("read_range", **sales, range="everything"),
        call("read_range", **sales, lines=3),
        call("write_range", **sales, at="A1", rows="rows"),
        call("write_range", **sales, at="C9", rows=[["=NOSUCH(1)"]]),
        call("write_range", **sales),
        call("create_sheet", path=book, new_name="Sales"),
        call("create_workbook", path=book, sheets=["Sales"]),
        call("delete_workbook", path=book),
    ]
    many = [[f"item {number}", number] for number in range(15_000)]
    slow = Step("write_range", {**sales, "at": "E1", "rows": many}, cancel_after=0.4)
    return [
        Step("", method="tools/list"),
        call("create_workbook", path=book, sheets=["Sales"]),
        call("write_range", **sales, at="A1", rows=rows),
        *session.some(right, 5, 9),
        *session.some(wrong, 2, 5),
        *([slow] if session.number in {3, 5} else []),
        *session.some(right, 1, 3),
    ]


PLANS: dict[str, Callable[[Session], list[Step]]] = {
    "git": git,
    "time": time,
    "sqlite": sqlite,
    "everything": everything,
    "everything-tasks": tasks,
    "filesystem": filesystem,
    "commands": commands,
    "excel": excel,
    "memory": memory,
    "everything-http": everything,
    "excel-http": excel_http,
}
