"""Documentation: its instructions work, everything is described, and links have a target."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest

import mcptally as mt
from mcptally.analytics.views import question_titles
from mcptally.cli import cli
from mcptally.errors import Exit
from mcptally.importers import FORMATS
from mcptally.rules.reference_page import find_rules
from mcptally.tables.all_tables import TABLES
from mcptally.tables.outcomes import OUTCOMES
from mcptally.transcript.events import AnyEvent
from tests.docs import blocks
from tests.docs.blocks import DATA, DOCS, PAGES, REASONS, ROOT, RUNNABLE, SHOWN, prose
from tests.importers.imported_logs import events
from tests.shared_folder import shared_folder

LINKED = [*PAGES, ROOT / "sample_traces" / "README.md"]
MARK = re.compile(r"output|first|tests|file: \S+|not run: .+|exits [123]")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?: \"[^)]*)?\)")
IMAGE = re.compile(r"<img src=\"([^\"]+)\"")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def furniture(tmp_path_factory) -> Path:
    return shared_folder(tmp_path_factory, "furniture", blocks.archive_and_store)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks.runs(page)], ids=name)
def test_what_a_page_says_to_do_works_and_prints_what_it_shows(page, furniture, tmp_path):
    folder = blocks.world(tmp_path, page, furniture)
    for block, said in blocks.follow(page, folder):
        assert block.code == said, (
            f"{name(page)}:{block.line}: python -m tests.docs.blocks shows it anew"
        )


def test_every_block_runs_or_says_in_known_words_why_not():
    for page in PAGES:
        for block in blocks.blocks(page):
            where = f"{name(page)}:{block.line}"
            assert block.kind in (*RUNNABLE, *DATA, *SHOWN), f"{where}: a block of {block.kind!r}"
            if block.why_not is not None:
                assert block.why_not in REASONS, f"{where}: {block.mark}"
                assert block.kind in RUNNABLE, where
            assert not block.mark or MARK.fullmatch(block.mark), f"{where}: {block.mark}"


def check_data(kind, code):
    """Raise ValueError if the code is not TOML, JSON or lines of JSON, by its kind."""
    if kind == "toml":
        tomllib.loads(code)
    elif kind == "json":
        try:
            json.loads(code)
        except ValueError:
            [json.loads(line) for line in code.splitlines()]


def test_data_that_a_page_shows_is_well_formed():
    for page in PAGES:
        for block in blocks.blocks(page):
            try:
                check_data(block.kind, block.code)
            except ValueError as error:
                pytest.fail(f"{name(page)}:{block.line}: {error}")


def test_every_command_that_a_page_shows_is_understood():
    for page in PAGES:
        for block in blocks.blocks(page):
            for words in blocks.invocations(block.code) if block.kind == "sh" else ():
                verb, *arguments = words or ["--help"]
                if verb.startswith("-"):
                    continue
                if verb in {"sample_traces", "traces"}:  # `mcptally PATH`
                    verb, arguments = "overview", words
                command = cli.get_command(click.Context(cli), verb)
                assert command is not None, f"{name(page)}:{block.line}: mcptally {verb}"
                context = click.Context(command, info_name=verb)
                if "--help" not in arguments:
                    given = [word for word in arguments if word != "..."]
                    try:
                        command.parse_args(context, given)
                    except click.UsageError as error:
                        pytest.fail(f"{name(page)}:{block.line}: {error.format_message()}")


DOCUMENTED = {
    "commands.md": [
        *(f"## `mcptally {verb}`" for verb in cli.list_commands(click.Context(cli))),
        *(f"| {code.value} |" for code in Exit),
    ],
    "glossary.md": [f"| `{outcome}` | {meaning} |" for outcome, meaning in OUTCOMES.items()],
    "questions.md": [f"| `{question}` |" for question in question_titles()],
    "tables.md": [
        *(f"## `{table.name}`" for table in TABLES),
        *(f"| `{column}` |" for table in TABLES for column in table.columns()),
    ],
    "rules.md": [f"| `{rule['id']}` |" for rule in find_rules()],
    "library.md": [f"`{public}" for public in mt.__all__],
    "import-formats.md": [f"| `{form}`" for form in FORMATS],
}


@pytest.fixture(scope="module")
def built():
    """Return the module that builds the reference pages."""
    sys.path.insert(0, str(ROOT / ".docs"))
    try:
        return importlib.import_module("reference")
    finally:
        sys.path.pop(0)


def test_links_of_built_pages_lead_somewhere(built):
    for page, make in built.PAGES.items():
        for link in LINK.findall(make()):
            path = link.partition("#")[0]
            assert "://" in link or (DOCS / "reference" / path).exists(), f"{page}: {link}"


@pytest.mark.parametrize("page", DOCUMENTED)
def test_everything_that_exists_is_in_the_reference(built, page):
    committed = DOCS / "reference" / page
    text = committed.read_text(encoding="utf-8") if committed.exists() else built.PAGES[page]()
    assert [words for words in DOCUMENTED[page] if words not in text] == []


def test_every_field_and_word_of_a_transcript_is_described():
    pages = ("reference/transcript.md", "explanation/recorder.md")
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    known = {
        field.encode_name for event in get_args(AnyEvent) for field in msgspec.structs.fields(event)
    }
    for file in sorted((ROOT / "sample_traces").glob("*.jsonl*")):
        for event in events(file):
            known |= event.keys() | {event["event"]}
            known |= {event[word] for word in ("reason", "closed_by", "phase") if event.get(word)}
            if event["event"] == "raw":
                known.add(event["why"])
    assert {word for word in known if f"`{word}`" not in text} == set()


def test_every_command_is_used_somewhere_outside_of_the_reference():
    texts = [page.read_text(encoding="utf-8") for page in PAGES if "reference" not in page.parts]
    said = "\n".join(texts)
    unused = [v for v in cli.list_commands(click.Context(cli)) if f"mcptally {v}" not in said]
    assert unused == []


def slug(heading: str) -> str:
    """A heading's anchor, as code hosts and the site make it."""
    bare = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
    return bare.strip().replace(" ", "-")


def test_links_lead_somewhere():
    for page in LINKED:
        for link in (*LINK.findall(prose(page)), *IMAGE.findall(prose(page))):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{name(page)}: {link}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", prose(target), flags=re.MULTILINE)
                assert anchor in map(slug, headings), f"{name(page)}: {link}"


def test_the_readme_promises_the_lowest_accuracy_by_calls_on_unread_servers():
    page = (DOCS / "reference" / "accuracy.md").read_text(encoding="utf-8")
    by_calls = [row.split("|")[5] for row in page.splitlines() if ", unread |" in row]
    assert by_calls
    lowest = int(100 * min(map(float, by_calls)))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"Expect (\d+) of 100 failed calls", readme) == [str(lowest)]


def test_every_page_is_in_the_index_that_is_the_sites_navigation():
    index = prose(DOCS / "index.md")
    listed = {(DOCS / link.split("#")[0]).resolve() for link in LINK.findall(index)}
    pages = set(DOCS.rglob("*.md"))
    notebooks = set((ROOT / "notebooks").glob("*.ipynb"))
    assert {name(page) for page in (pages | notebooks) - listed} == {"docs/index.md"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="mkdocs-material is not installed ('.[dev]' has it)")
    # The notice about the future of mkdocs-material does not concern these pages.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "-f", ROOT / ".docs" / "mkdocs.yml", "-d", tmp_path / "site"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for page in ("notebooks/tour", "reference/commands"):
        assert (tmp_path / "site" / page / "index.html").exists()
