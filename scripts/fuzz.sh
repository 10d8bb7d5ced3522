#!/usr/bin/env bash
# Compares meshes with one rank, with all flags drawn at random: tensor by tensor, and in fp16 by the steps that they
# skip.
#
#   scripts/fuzz.sh [N [SEED [STEPS]]]
#
#   N      draws of each program: minigpt, llama, resnet; 200 if not given; a quarter of them of steps skipped
#   SEED   of the draws; 1 if not given
#   STEPS  minigpt and llama alone, for so many steps, all with --bitwise; 24 meshes with each ZeRO stage first

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-200} in
  -h | --help) usage scripts/fuzz.sh && exit ;;
  -*) die "fuzz: unknown option $1" "Options: --help; N, a number of draws" ;;
  *[!0-9]*) die "fuzz: $1 is no number of draws" ;;
esac
scripts/setup.sh
build release --target minigpt llama resnet
export PYTHONDONTWRITEBYTECODE=1 failed=0
for program in minigpt triax-llama triax-resnet; do
  if [[ $program = triax-resnet && -n ${3:-} ]]; then continue; fi
  say "fuzz: $program"
  python3 tests/examples/meshes/fuzz.py "build/release/bin/$program" "${1:-200}" "${2:-1}" ${3:+"$3"} || failed=1
done
for program in minigpt triax-llama; do
  [ -z "${3:-}" ] || continue
  say "fuzz: steps that $program skips in fp16"
  python3 tests/examples/meshes/fuzz_fp16.py "build/release/bin/$program" "$((${1:-200} / 4))" "${2:-1}" || failed=1
done
exit "$failed"
