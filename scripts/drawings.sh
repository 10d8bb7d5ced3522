#!/usr/bin/env bash
# Makes docs/drawings: scripts/draw.py draws what `minigpt schedule` and bench/figures.cpp print, scripts/drawings/draw_memory.py
# the memory of `minigpt train --ledger`, scripts/drawings/draw_losses.py the losses that scripts/any_mesh.sh keeps.
#
#   scripts/drawings.sh [PROGRAMS] [DIRECTORY]   default: build/release/bin docs/drawings

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/drawings.sh && exit ;; esac

cd -- "$caller" # the arguments are the caller's paths
programs=${1:-$root/build/release/bin}
directory=${2:-$root/docs/drawings}
for name in minigpt figures; do
  [ -x "$programs/$name" ] ||
    die "no program $programs/$name; build it: cmake --build --preset release --target $name"
done
mkdir -p "$directory"

draw() { "$root/scripts/draw.py" --svg "$directory/$1.svg" "${@:2}"; }

json=$(mktemp -d)
trap 'rm -r "$json"' EXIT
for name in gpipe 1f1b interleaved zb-h1 zb-interleaved v-min v-half zb-v dualpipev; do
  "$programs/minigpt" schedule --schedule "$name" --pp 4 --micros 8 --json >"$json/$name"
  draw "$name" "$json/$name"
done
"$programs/minigpt" schedule --schedule zb-2p --pp 4 --micros 12 --json | draw zb-2p
draw compare "$json"/{1f1b,interleaved,zb-h1,zb-interleaved}
"$programs/minigpt" schedule --schedule 1f1b --pp 2 --micros 4 --json >"$json/any-mesh" # as in scripts/any_mesh.sh
"$root/scripts/drawings/draw_losses.py" "$root"/docs/pictures/any-mesh-{1x1x1,2x2x2}.jsonl "$json/any-mesh" --mesh 2x2x2 \
  --svg "$directory/any-mesh.svg"
for found in 1/1 1/1.25 1/1.5 1/1.75 1/2 2/1 2/1.25; do # chunks, memory: the 6.2B model of Qi et al. 2023, Table 6
  "$programs/minigpt" schedule --search --pp 8 --micros 24 --times 29.718,29.444,19.927,0.527 --chunks "${found%/*}" \
    --memory "${found#*/}p" --hold 0.5 --tries 8000 --json >"$json/bubbles${found/\//-}"
done
draw bubbles "$json"/bubbles{1-1,1-1.25,1-1.5,1-1.75,1-2,2-1,2-1.25}

# ledger NAME FLAGS...: a step of the example of docs/strategies, into a file of this name.
ledger() {
  OMP_NUM_THREADS=1 COLUMNS=200 "$programs/minigpt" train --config "$root/docs/strategies/example.toml" \
    --global-batch 4 --out "$json/run-$1" "${@:2}" >"$json/$1"
}
memory() { "$root/scripts/drawings/draw_memory.py" "${@:2}" --svg "$directory/$1.svg"; }
for mode in off selective block; do ledger "$mode" --recompute "$mode"; done
memory recomputation "$json"/{off,selective,block} --title "Memory of a rank, by --recompute"
ledger optimizer --offload optimizer
ledger params --offload params --zero 3
memory offload "$json"/{off,optimizer,params} --title "Memory of a rank, by --offload"

"$programs/figures" mesh 2x2x2 | draw mesh-2x2x2
"$programs/figures" mesh 4x1x1 | draw mesh-4x1x1
"$programs/figures" zero 4 | draw zero
"$programs/figures" tensor 2 | draw tensor
"$programs/figures" vocabulary 2 | draw vocabulary
