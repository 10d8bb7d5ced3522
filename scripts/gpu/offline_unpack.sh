#!/usr/bin/env bash
# Unpacks the packages of scripts/offline_bundle.sh and prints the environment that uses them.
#
#   eval "$(offline/unpack.sh PREFIX)"
#
# Nothing outside of PREFIX changes. What was unpacked before is not unpacked again.

set -euo pipefail

# Debian links these in its alternatives when a package is installed.
link_alternatives() {
  local name
  for name in mpirun mpiexec mpicc mpicxx; do
    [ ! -e "$1/usr/bin/$name.openmpi" ] || ln -sf "$name.openmpi" "$1/usr/bin/$name"
  done
}

# prepend NAME FOLDER...: a shell's line that puts them in front of a variable.
prepend() {
  local name=$1 folders
  shift
  folders=$(IFS=: && echo "$*")
  # shellcheck disable=SC2016 # for the shell that evaluates it
  printf 'export %s=%q${%s:+:$%s}\n' "$name" "$folders" "$name" "$name"
}

main() {
  if [ $# -ne 1 ]; then
    echo "usage: eval \"\$($0 PREFIX)\"" >&2
    exit 64
  fi
  local here prefix package libraries
  here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
  mkdir -p "$1"
  prefix=$(cd -- "$1" && pwd)
  if [[ $prefix == *[[:space:]]* ]]; then
    echo "error: unpack: PREFIX $prefix has a space in it, which mpicxx does not quote" >&2
    exit 64
  fi
  if [ ! -e "$prefix/unpacked" ]; then
    for package in "$here"/packages/*.deb; do dpkg -x "$package" "$prefix"; done
    link_alternatives "$prefix"
    touch "$prefix/unpacked"
  fi
  # Where this kind of machine has its libraries: usr/lib/x86_64-linux-gnu for one.
  libraries=$(dirname -- "$(find "$prefix/usr/lib" -name 'libmpi.so.*' -print -quit)")
  printf 'export OPAL_PREFIX=%q\n' "$prefix/usr"
  prepend PATH "$prefix/usr/bin"
  prepend LD_LIBRARY_PATH "$libraries" "$prefix${libraries#"$prefix/usr"}"
  prepend CMAKE_PREFIX_PATH "$prefix/usr" "$libraries"
}

main "$@"
