# Sourced by servers*.sh: what is pinned is installed once, and again when the pins are others.

# same <stamp> <wanted>...: true when the stamp file already says what is wanted.
same() {
  local stamp=$1
  shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$*" ]
}

# venv_with <folder> <pin>...: a venv with these; the caller writes the stamp when all is done.
venv_with() {
  local home=$1
  shift
  [ -x "$home/bin/python" ] || "${PYTHON:-python3}" -m venv "$home"
  # uv takes a tenth of pip's time, but finds no registry that only pip's settings name.
  [ -n "${UV_PROGRAM:-}" ] && "$UV_PROGRAM" pip install --quiet --python "$home/bin/python" "$@" ||
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# npm_into <folder> <pin>...: node_modules with these, where there is npm; else it says so.
npm_into() {
  local home=$1
  shift
  if ! command -v npm >/dev/null; then
    echo "$(basename "$0"): no npm here: the npm servers and clients are left out" >&2
  elif ! same "$home/.npm" "$@"; then
    [ -f "$home/package.json" ] || echo '{"private": true}' >"$home/package.json"
    # Install scripts fetch browsers and binaries that nothing here needs.
    npm install --prefix "$home" --ignore-scripts --no-audit --no-fund --loglevel=error "$@"
    echo "$*" >"$home/.npm"
  fi
}
