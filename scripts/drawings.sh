#!/usr/bin/env bash
# Makes the drawings of docs/drawings with the example program `schedule`.
#
#   scripts/drawings.sh [SCHEDULE] [DIRECTORY]   default: build/release/bin/schedule docs/drawings

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
program=${1:-$root/build/release/bin/schedule}
directory=${2:-$root/docs/drawings}

mkdir -p "$directory"
for name in gpipe 1f1b interleaved zb-h1 zb-interleaved; do
  chunks=1
  [[ $name == *interleaved ]] && chunks=2
  "$program" --schedule "$name" --stages 4 --micros 8 --chunks $chunks --svg "$directory/$name.svg"
done
"$program" --mesh 2x2x2 --svg "$directory/mesh-2x2x2.svg"
"$program" --zero 4 --svg "$directory/zero.svg"
"$program" --tensor 2 --svg "$directory/tensor.svg"
