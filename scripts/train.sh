#!/usr/bin/env bash
# Trains minigpt on two ranks, data-parallel, then lets it write.
#
#   scripts/train.sh [MINIGPT TRAIN OPTIONS]
#
#   scripts/train.sh                          the Jargon File, or this repository's own sources
#   scripts/train.sh --steps 50 --zero 2      any option of `minigpt train`
#   scripts/train.sh --data FILE --out DIR    another text, another run directory
#
# The ranks are processes under mpirun, or threads where there is no mpirun. What is missing is
# installed first (scripts/setup.sh). The run directory is runs/<date> unless --out names one. CUDA's
# kernels are compiled where a GPU answers, or with TRIAX_CUDA=ON in the environment.

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/train.sh && exit ;; esac

out=$root/runs/$(date +%Y%m%d-%H%M%S)
prompt=(--prompt "A hacker is ")
previous=
for arg in "$@"; do
  case $arg in
    --out=*) out=${arg#--out=} ;;
    --data | --data=* | --config | --config=*) prompt=() ;; # that text may lack these letters
  esac
  [ "$previous" != --out ] || out=$arg
  previous=$arg
done

scripts/setup.sh
configure_first
[ -e build/release/bin/minigpt ] || say "build: for this machine alone, four to ten minutes on two idle cores"
compile release --target minigpt
minigpt=$root/build/release/bin/minigpt

launch=() ranks=()
if have mpirun; then
  launch=("$root/scripts/launch.sh" -n 2 --)
else
  ranks=(--comm threads --ranks 2)
fi

cd -- "$caller" # paths among the arguments are the caller's
say "train: two ranks, into $out"
"${launch[@]}" "$minigpt" train "${ranks[@]}" --out "$out" --steps 1200 --lr 4e-3 "$@"

checkpoint=$(find "$out" -maxdepth 1 -type d -name 'step-*' ! -name '*.tmp-*' | sort -V | tail -n 1)
[ -n "$checkpoint" ] || die "train: no checkpoint in $out, so there is nothing to sample from"
say "sample: $checkpoint"
"$minigpt" sample --checkpoint "$checkpoint" "${prompt[@]}" --tokens 300 --temperature 0.6
