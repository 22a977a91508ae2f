"""`python -m tests.benchmarks NAME …`: one benchmark, by the name of its module."""

import runpy
import sys

SCRIPTS = ("calibrate", "questions", "ranking", "ratios", "recorder")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SCRIPTS:
        raise SystemExit(f"usage: python -m tests.benchmarks {{{','.join(SCRIPTS)}}} …")
    name = sys.argv.pop(1)
    runpy.run_module(f"tests.benchmarks.{name}", run_name="__main__", alter_sys=True)
