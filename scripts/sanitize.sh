#!/usr/bin/env bash
# Builds triax with sanitizers and runs the tests under them.
#
#   scripts/sanitize.sh [asan] [tsan] [-- CTEST OPTIONS]
#
#   asan   address, undefined behaviour, leaks
#   tsan   data races between threads: ranks, and those that share a kernel's work; without the tests
#          that start processes over MPI
#
# Both go without the three tests that hold steps against simulated times, which sanitizers stretch.
#
# Without a name, one after the other. One line of verdict each; the exit status is 0 only if all are clean.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

presets=()
while [ $# -gt 0 ]; do
  case $1 in
    asan | tsan) presets+=("$1") ;;
    -h | --help) usage scripts/sanitize.sh && exit ;;
    --) shift && break ;;
    *) die "sanitize: unknown option $1" "Options: asan, tsan, --help, -- CTEST OPTIONS" ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)

# Open MPI unloads its plugins before leaks are looked for, so what they keep has no name, unless the
# whole stack was noted at each allocation. That is slow: the tests that start processes go without
# leaks, and one small training over MPI with them.
leaks() {
  local out command=("$root/build/asan/bin/minigpt" train --layers 1 --heads 2 --width 16 --context 8
    --micro-batch 2 --steps 2 --warmup 0)
  have mpirun && [ -x "${command[0]}" ] || return 0
  say "leaks: two steps on two ranks"
  out=$(mktemp -d)
  OMP_NUM_THREADS=1 ASAN_OPTIONS=fast_unwind_on_malloc=0 \
    LSAN_OPTIONS=suppressions=tests/support/lsan.supp:print_suppressions=0 \
    mpirun -np 2 --allow-run-as-root --oversubscribe --bind-to none \
    "${command[@]}" --out "$out/run" >"$out/log" 2>&1 || { cat "$out/log" && return 1; }
  rm -rf "$out"
}

check() {
  local preset=$1
  shift
  build "$preset" || return
  run_tests "$preset" "$@" || return
  [ "$preset" = tsan ] || { run_tests asan-processes "$@" && leaks; }
}

scripts/setup.sh
verdicts=() failed=0
for preset in "${presets[@]}"; do
  if (check "$preset" "$@"); then
    verdicts+=("$preset: clean")
  else
    verdicts+=("$preset: NOT clean") failed=1
  fi
done
printf '%s\n' "${verdicts[@]}"
exit $failed
