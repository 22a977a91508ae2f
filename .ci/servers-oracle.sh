#!/usr/bin/env bash
# Fetches what our validation is held against: the official MCP schemas (in the source distribution
# of mcp) and JSON Schema's own test suite (in that of jsonschema). Nothing of either is run.
#
#   bash .ci/servers-oracle.sh FOLDER      then      MCPTALLY_SERVERS=FOLDER pytest tests/validity
#
# FOLDER/oracle holds the two archives as they were published. Run again, it does nothing.
set -euo pipefail

PINS=("mcp==2.3.0" "jsonschema==4.26.0")

if [ $# -ne 1 ]; then
  echo "usage: bash .ci/servers-oracle.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1/oracle"
folder=$(cd "$1/oracle" && pwd)
python=${PYTHON:-python3}
for pin in "${PINS[@]}"; do
  name=${pin/==/-}
  if [ ! -f "$folder/$name.tar.gz" ]; then
    # pip asks the package's build tool for its metadata; `:all:` would build that from source, too.
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
      --no-binary "${pin%%==*}" --dest "$folder" "$pin"
  fi
done
