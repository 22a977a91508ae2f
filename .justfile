# Commands for contributors; docs/CONTRIBUTING.md explains them. `just` lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The environment that the commands use; .ci/run passes its own.
venv := ".venv"

export PATH := absolute_path(venv / "bin") + ":" + env("PATH")

[private]
default:
    @just --list --unsorted

# Create the environment: mcptally (editable), the test tools and the development tools
setup:
    python3 -m venv {{ venv }}
    {{ venv }}/bin/pip install --quiet --constraint .ci/constraints.txt --editable '.[test,dev]'

# Run the fast tests; arguments go to pytest
test *arguments:
    python -m pytest --quiet -n auto --dist worksteal -m "not slow" {{ arguments }}

# Run all tests; arguments go to pytest
test-all *arguments:
    python -m pytest --quiet -n auto --dist worksteal {{ arguments }}

# Check format, lint rules, types and import contracts
lint:
    ruff format --check .
    ruff check .
    mypy
    lint-imports

# Build the documentation site into build/site
docs:
    mkdocs build --quiet --strict -f .docs/mkdocs.yml

# Run one benchmark; further arguments go to it
benchmark name="ratios" *arguments:
    python -m tests.benchmarks {{ name }} {{ arguments }}

# Run the fast tests with the lowest version of each dependency that pyproject.toml allows
test-lowest:
    bash .ci/fast-tests 3.11 lowest-direct

# Run the fast tests on each supported Python that is installed
test-pythons:
    bash .ci/fast-tests 3.11 constraints
    bash .ci/fast-tests 3.12 constraints
    bash .ci/fast-tests 3.13 constraints

# Write .ci/constraints.txt with the newest versions of all dependencies; run the tests afterwards
update-constraints:
    uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-header --no-annotate \
        --extra dask --extra s3 --extra test --extra dev pyproject.toml --output-file .ci/constraints.txt

# Build wheel and sdist into dist/ and check both in fresh environments
release:
    bash .ci/release
