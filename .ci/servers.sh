#!/usr/bin/env bash
# Installs the real MCP servers and clients that the tests marked `server` run, at pinned versions.
#
#   bash .ci/servers.sh FOLDER        then        MCPTALLY_SERVERS=FOLDER pytest -m server
#
# FOLDER/bin holds the PyPI programs (FOLDER is a venv of its own, so that a server's dependencies
# never meet ours), FOLDER/node_modules/.bin the npm ones. Run again, it does nothing; with other
# pins, it installs them. Needs python3 with venv; npm where the npm ones are wanted (without npm
# the tests that need them skip and say so).
set -euo pipefail

PYPI=(
  "mcp-server-time==2026.10.19"
  "mcp-server-git==2026.10.19"
)
NPM=(
  "@modelcontextprotocol/server-everything@2026.8.31"
  "@modelcontextprotocol/server-filesystem@2026.8.31"
  "@modelcontextprotocol/sdk@1.32.2"
  "@modelcontextprotocol/inspector@2.12.0"
)

if [ $# -ne 1 ]; then
  echo "usage: bash .ci/servers.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
. "$(dirname "$0")/pinned.sh"

if ! same "$folder/.pypi" "${PYPI[@]}"; then
  venv_with "$folder" "${PYPI[@]}"
  echo "${PYPI[*]}" >"$folder/.pypi"
fi
npm_into "$folder" "${NPM[@]}"
