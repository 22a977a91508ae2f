"""`python -m tests.benchmarks NAME …`: one benchmark, by the name of its module."""

import runpy
import sys
from pathlib import Path

from tests.benchmarks import questions, score

SCRIPTS = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__main__"
)


def main() -> None:
    """Run the named benchmark."""
    if len(sys.argv) < 2 or sys.argv[1] not in SCRIPTS:
        raise SystemExit(f"usage: python -m tests.benchmarks {{{','.join(SCRIPTS)}}} …")
    name = sys.argv.pop(1)
    if name == "score":
        score.main(sys.argv[1:])
    elif name == "questions":
        questions.main(sys.argv[1:])
    else:
        runpy.run_module(f"tests.benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
