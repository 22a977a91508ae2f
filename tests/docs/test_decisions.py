"""Decision records: a number, a date and a status, and an index that lists them all.

python -m tests.docs.test_decisions      writes the table of docs/decisions/README.md again
"""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = next(
    folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists()
)
DECISIONS: Final = ROOT / "docs" / "decisions"
INDEX: Final = DECISIONS / "README.md"
RECORDS: Final = sorted(DECISIONS.glob("[0-9]*.md"))
STATUS: Final = r"accepted|rejected|superseded by \[\d{4}\]\(|accepted; .*\[\d{4}\]\("
HEAD: Final = re.compile(
    rf"# (\d{{4}}) (.+)\n\n- Date: (\d{{4}}-\d\d-\d\d)\n- Status: ((?:{STATUS}).*)\n"
)


def table() -> str:
    """The index of all records as a Markdown table."""
    rows = ["| number | title | date | status |", "|---|---|---|---|"]
    for path in RECORDS:
        head = HEAD.match(path.read_text(encoding="utf-8"))
        assert head, f"{path.name}: expected '# NNNN Title', '- Date: ' and '- Status: '"
        number, title, date, status = head.groups()
        assert path.name.startswith(f"{number}-"), path.name
        rows.append(f"| [{number}]({path.name}) | {title} | {date} | {status} |")
    return "\n".join(rows) + "\n"


def test_no_two_decision_records_have_the_same_number():
    numbers = [path.name[:4] for path in RECORDS]
    assert len(set(numbers)) == len(numbers)


def test_the_index_lists_every_decision_record_with_its_title_date_and_status():
    assert INDEX.read_text(encoding="utf-8").endswith("\n\n" + table()), (
        "run python -m tests.docs.test_decisions"
    )


def test_a_superseded_record_and_its_successor_name_each_other():
    for path in RECORDS:
        for successor in re.findall(
            r"^- Status: .*superseded by \[\d+\]\(([^)]+)\)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            text = (DECISIONS / successor).read_text(encoding="utf-8")
            assert re.search(rf"^- Supersedes: .*\({path.name}\)", text, re.MULTILINE), successor


def tracked() -> list[str]:
    """Paths of the text files of the repository that can mention a record."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.toml", "*.sql", "*.ipynb"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.splitlines()


def test_every_mention_of_a_decision_record_names_one_that_exists():
    files = tracked()
    if not files:
        pytest.skip("this is not a git clone")
    names = {path.name for path in RECORDS}
    numbers = {name[:4] for name in names}
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
        for name, number in re.findall(r"decisions/((\d{4})(?:-[\w-]+\.md)?)", text):
            assert number in numbers, f"{file}: {name}"
            assert name in names or name == number, f"{file}: {name}"


if __name__ == "__main__":
    before = INDEX.read_text(encoding="utf-8").split("| number |")[0]
    INDEX.write_text(before + table(), encoding="utf-8")
