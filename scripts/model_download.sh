# What the scripts/get_* share; they source it from the repository's root.

# fail MESSAGE...: says it under the script's name and ends.
fail() {
  echo "scripts/$(basename "$0"): $*" >&2
  exit 1
}

# is_file FILE BYTES SHA256: whether it is there, whole and unchanged.
is_file() {
  [[ -f $1 && $(stat --dereference --format %s "$1") == "$2" && $(sha256sum "$1" | cut -d ' ' -f 1) == "$3" ]]
}

# download FOLDER PACKAGE...: wheels of the package index, without what they depend on.
download() {
  local folder=$1
  shift
  local python=.venv/bin/python
  if [[ ! -x $python ]] || ! "$python" -m pip --version > /dev/null 2>&1; then
    python=python3
  fi
  "$python" -m pip download --quiet --no-deps --dest "$folder" "$@" ||
    fail "$1 cannot be downloaded. Is there a network, and does the package index carry it?"
}

# unpack WHEEL FOLDER
unpack() {
  python3 -m zipfile --extract "$1" "$2" || fail "$(basename "$1") cannot be unpacked"
}
