#!/usr/bin/env bash
# Makes docs/drawings: scripts/draw.py draws what the example program `schedule` prints.
#
#   scripts/drawings.sh [SCHEDULE] [DIRECTORY]   default: build/release/bin/schedule docs/drawings

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/drawings.sh && exit ;; esac

cd -- "$caller" # the arguments are the caller's paths
program=${1:-$root/build/release/bin/schedule}
directory=${2:-$root/docs/drawings}
[ -x "$program" ] || die "no program $program; build it: cmake --build --preset release --target schedule"
mkdir -p "$directory"

draw() { "$root/scripts/draw.py" --svg "$directory/$1.svg" "${@:2}"; }

json=$(mktemp -d)
trap 'rm -r "$json"' EXIT
for name in gpipe 1f1b interleaved zb-h1 zb-interleaved; do
  chunks=1
  [[ $name == *interleaved ]] && chunks=2
  "$program" --schedule "$name" --stages 4 --micros 8 --chunks $chunks --json >"$json/$name"
  draw "$name" "$json/$name"
done
draw compare "$json"/{1f1b,interleaved,zb-h1,zb-interleaved}
"$program" --mesh 2x2x2 --json | draw mesh-2x2x2
"$program" --zero 4 --json | draw zero
"$program" --tensor 2 --json | draw tensor
