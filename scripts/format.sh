#!/usr/bin/env bash
# Formats every tracked C++ file as .clang-format says, with clang-format 14.
#
#   scripts/format.sh            change the files
#   scripts/format.sh --check    change nothing, list the files that differ; exit status 1 if any

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

check=no
for arg in "$@"; do
  case $arg in
    --check) check=yes ;;
    -h | --help) usage scripts/format.sh && exit ;;
    *) die "format: unknown option $arg" "Options: --check, --help" ;;
  esac
done

tool=
for candidate in clang-format-14 clang-format; do
  if have "$candidate" && "$candidate" --version | grep -q 'version 14\.'; then
    tool=$candidate && break
  fi
done
[ -n "$tool" ] || die "format: clang-format 14 is not there" "Install it: scripts/setup.sh --dev"

mapfile -t files < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
if [ $check = no ]; then
  "$tool" -i "${files[@]}"
  exit
fi

say "format: ${#files[@]} files"
said=$("$tool" --dry-run -Werror "${files[@]}" 2>&1) && exit
differ=$(sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: .*/\1/p' <<<"$said" | sort -u)
die "format: these files differ from .clang-format; the cure: scripts/format.sh" "${differ:-$said}"
