#!/usr/bin/env bash
# Builds triax and runs its tests: all, or those that are asked for.
#
#   scripts/test.sh [CTEST OPTIONS]
#   scripts/test.sh --quick NAME [CTEST OPTIONS]
#
#   scripts/test.sh -L quick             first: what finds most mistakes, in minutes (README.md)
#   scripts/test.sh                      everything: 30 to 75 minutes on two cores
#   scripts/test.sh -R autograd          everything is built; tests whose name matches are run
#   scripts/test.sh -V -R corpus         with their output
#   scripts/test.sh --quick Functors     only what tests of this name need is built, without CUDA
#
# NAME is a regular expression for names as ctest prints them, `autograd.Ops.Matmul` for one. What is
# missing is installed first (scripts/setup.sh). The build is in build/release; with --quick in
# build/quick, where every file is compiled alone. CUDA's kernels are compiled where a GPU answers, or
# with TRIAX_CUDA=ON in the environment.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

quick='' options=() labelled=no
while [ $# -gt 0 ]; do
  [ "$1 ${2-}" != "-L quick" ] || labelled=yes
  case $1 in
    -h | --help) usage scripts/test.sh && exit ;;
    -V | -VV | -N | --rerun-failed | --stop-on-failure) options+=("$1") && shift && continue ;;
    --quick | -R | -E | -L | -LE | -I | -j | --repeat | --timeout | --output-junit)
      [ $# -ge 2 ] || die "test: $1 has no value" ;;&
    --quick) quick=$2 ;;
    -R | -E | -L | -LE | -I | -j | --repeat | --timeout | --output-junit) options+=("$1" "$2") ;;
    *) die "test: unknown option $1" "Options: --quick NAME, --help, and ctest's -R -E -L -LE -I -j -V -VV -N" \
      "--rerun-failed --stop-on-failure --repeat --timeout --output-junit" ;;
  esac
  shift 2
done

scripts/setup.sh
if [ $labelled = yes ] && [ -z "$quick" ]; then
  configure_first
  compile release --target quick_tests
  run_tests release "${options[@]}"
  say "quick: $(span $SECONDS); all tests, with scripts/test.sh: 30 to 75 minutes on two cores"
  exit
fi
if [ -z "$quick" ]; then
  [ ${#options[@]} -gt 0 ] || say "test: 30 to 75 minutes on two cores; first, in minutes: scripts/test.sh -L quick"
  configure release -DTRIAX_CPU_LEVELS=all
  compile release
  run_tests release "${options[@]}"
  exit
fi
configure quick
targets=$(python3 tests/targets.py build/quick "$quick")
mapfile -t targets <<<"$targets"
[ -z "${targets[0]}" ] || compile quick --target "${targets[@]}"
run_tests quick -R "$quick" -E _NOT_BUILT "${options[@]}"
say "quick: $(span $SECONDS)"
