#!/usr/bin/env bash
# Installs what the report is looked at with: Chromium without windows, which takes half the time of
# one with them (Debian's package, where we may install it), and axe-core, which finds what bars
# people from a page.
#
#   bash .ci/servers-browser.sh FOLDER      then      MCPTALLY_SERVERS=FOLDER pytest tests/output
#
# Run again, it does nothing. The tests find Chromium on PATH, and skip where there is none.
set -euo pipefail

AXE="axe-core@4.14.1"

if [ $# -ne 1 ]; then
  echo "usage: bash .ci/servers-browser.sh FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)

if ! command -v chromium-headless-shell >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null ||
      echo "servers-browser.sh: apt-get has no chromium-headless-shell" >&2
  fi
  command -v chromium-headless-shell chromium google-chrome >/dev/null ||
    echo "servers-browser.sh: no chromium on PATH, and none can be installed here" >&2
fi

if ! command -v npm >/dev/null; then
  echo "servers-browser.sh: no npm here: axe-core is left out" >&2
elif [ ! -f "$folder/.axe" ] || [ "$(cat "$folder/.axe")" != "$AXE" ]; then
  [ -f "$folder/package.json" ] || echo '{"private": true}' >"$folder/package.json"
  npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error "$AXE"
  echo "$AXE" >"$folder/.axe"
fi
