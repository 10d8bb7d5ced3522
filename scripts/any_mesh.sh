#!/usr/bin/env bash
# Trains minigpt on one rank and on a 2x2x2 mesh of threads, with the same data and seed, and keeps the losses in
# docs/pictures. scripts/drawings.sh draws them: docs/drawings/any-mesh.svg. Takes three minutes on two cores.
#
#   scripts/any_mesh.sh [MINIGPT] [DIRECTORY]   default: build/release/bin/minigpt docs/pictures

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/any_mesh.sh && exit ;; esac

cd -- "$caller" # the arguments are the caller's paths
minigpt=${1:-$root/build/release/bin/minigpt}
directory=${2:-$root/docs/pictures}
[ -x "$minigpt" ] || die "no program $minigpt; build it: cmake --build --preset release --target minigpt"

runs=$(mktemp -d)
trap 'rm -r "$runs"' EXIT

# losses MESH FLAGS...: 300 steps of minigpt's default model; the losses of all steps into any-mesh-MESH.jsonl.
losses() {
  OMP_NUM_THREADS=1 "$minigpt" train --steps 300 --lr 4e-3 --global-batch 32 --micro-batch 4 --val-fraction 0 --seed 1 \
    --out "$runs/$1" "${@:2}"
  sed -E 's/^(\{"step":[0-9]+,"loss":[0-9.]+),.*/\1}/' "$runs/$1/metrics.jsonl" >"$directory/any-mesh-$1.jsonl"
}
losses 1x1x1
losses 2x2x2 --comm threads --ranks 8 --dp 2 --pp 2 --tp 2
