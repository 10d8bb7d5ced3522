#!/usr/bin/env bash
# Trains minigpt on two ranks, data-parallel, then lets it write.
#
#   scripts/train.sh [MINIGPT TRAIN OPTIONS]
#
#   scripts/train.sh                          the corpus made of this repository's own sources
#   scripts/train.sh --steps 50 --zero 2      any option of `minigpt train`
#   scripts/train.sh --data FILE --out DIR    another text, another run directory
#
# The ranks are processes under mpirun, or threads where there is no mpirun. What is missing is
# installed first (scripts/setup.sh). The run directory is runs/<date> unless --out names one.

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/train.sh && exit ;; esac

out=$root/runs/$(date +%Y%m%d-%H%M%S)
previous=
for arg in "$@"; do
  case $arg in --out=*) out=${arg#--out=} ;; esac
  [ "$previous" != --out ] || out=$arg
  previous=$arg
done

scripts/setup.sh
build release --target minigpt
minigpt=$root/build/release/bin/minigpt

launch=() ranks=()
if have mpirun; then
  launch=("$root/scripts/launch.sh" -n 2 --)
else
  ranks=(--comm threads --ranks 2)
fi

cd -- "$caller" # paths among the arguments are the caller's
say "train: two ranks, into $out"
"${launch[@]}" "$minigpt" train "${ranks[@]}" --out "$out" --steps 1200 "$@"

checkpoint=$(find "$out" -maxdepth 1 -type d -name 'step-*' ! -name '*.tmp-*' | sort -V | tail -n 1)
[ -n "$checkpoint" ] || die "train: no checkpoint in $out, so there is nothing to sample from"
say "sample: $checkpoint"
"$minigpt" sample --checkpoint "$checkpoint" --prompt "Tensor " --tokens 300 --seed 1
