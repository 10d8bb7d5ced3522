#!/usr/bin/env bash
# Builds triax with sanitizers and runs the tests under them.
#
#   scripts/sanitize.sh [asan] [tsan] [-- CTEST OPTIONS]
#
#   asan   address, undefined behaviour, leaks
#   tsan   data races between ranks that are threads; one OpenMP thread each, because GCC's OpenMP
#          library is invisible to it, and without the tests that start processes over MPI
#
# Both if none is named. One line of verdict each; the exit status is 0 only if all are clean.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

presets=()
while [ $# -gt 0 ]; do
  case $1 in
    asan | tsan) presets+=("$1") ;;
    -h | --help) usage scripts/sanitize.sh && exit ;;
    --) shift && break ;;
    *) die "sanitize: unknown argument $1" "Known: asan, tsan, -- CTEST OPTIONS" ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)

scripts/setup.sh
verdicts=() failed=0
for preset in "${presets[@]}"; do
  if build "$preset" && run_tests "$preset" "$@"; then
    verdicts+=("$preset: clean")
  else
    verdicts+=("$preset: NOT clean") failed=1
  fi
done
printf '%s\n' "${verdicts[@]}"
exit $failed
