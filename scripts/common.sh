# shellcheck shell=bash
# Sourced by the other scripts: where things are, how to say what happens.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd -- "$root" || exit

# The comment at the top of the script that was called is its help.
usage() {
  sed -n '2,/^$/ { s/^# \{0,1\}//; p; }' "${root}/$1"
}

say() { printf '==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

cores() { nproc 2>/dev/null || echo 2; }

# What mpirun counts as slots: cores, not hardware threads.
physical_cores() { lscpu -p=core,socket 2>/dev/null | grep -v '^#' | sort -u | wc -l; }

# Configure and build one preset; silent unless something is wrong, a moving line on a terminal.
build() {
  local preset=$1 log=build/$1/configure.log quiet=()
  shift
  mkdir -p "build/$preset"
  say "configure: build/$preset"
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; die "cmake could not configure build/$preset"; }
  say "build: build/$preset"
  [ -t 1 ] || quiet=(-- --quiet)
  cmake --build --preset "$preset" "$@" "${quiet[@]}"
}

# Run the tests of one preset; on a terminal one moving line, else only what failed and the sums.
run_tests() {
  local preset=$1
  shift
  say "test: $preset"
  if [ -t 1 ]; then
    ctest --preset "$preset" -j "$(cores)" --progress "$@"
  else
    ctest --preset "$preset" -j "$(cores)" "$@" |
      awk '!/^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ Test .* Passed )/ { print; fflush() }'
  fi
}
