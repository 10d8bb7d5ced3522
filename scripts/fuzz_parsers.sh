#!/usr/bin/env bash
# Feeds every parser with what libFuzzer invents, under clang's sanitizers.
#
#   scripts/fuzz_parsers.sh [--seconds N] [--inputs N] [PARSER..]
#
#   --seconds N   time of each parser (default: 60)
#   --inputs N    end each after so many inputs instead
#   PARSER        a file of tests/fuzz/, without its ending (default: all)
#
# As many run at a time as there are cores. Inputs that reach new code are kept in build/fuzz/corpus/
# for the next time. One line of verdict each; the exit status is 0 only if none failed. A parser fails that crashes, throws anything but a
# refusal, takes more than 10 seconds, or allocates 256 MiB at once for at most 64 KiB of input.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

limit=-max_total_time=60 parsers=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds | --inputs)
      case ${2:-} in '' | *[!0-9]* | 0) die "fuzz_parsers: $1 ${2:-}" "Expected a number above 0." ;; esac
      if [ "$1" = --seconds ]; then limit=-max_total_time=$2; else limit=-runs=$2; fi
      shift
      ;;
    -h | --help) usage scripts/fuzz_parsers.sh && exit ;;
    -*) die "fuzz_parsers: unknown option $1" "Options: --seconds N, --inputs N, --help, PARSER.." ;;
    *) parsers+=("$1") ;;
  esac
  shift
done
have clang++ || die "fuzz_parsers: no clang++ here" "apt-get install clang libclang-rt-14-dev"
if [ ${#parsers[@]} -eq 0 ]; then
  for file in tests/fuzz/*.cpp; do parsers+=("$(basename "$file" .cpp)"); done
fi
for parser in "${parsers[@]}"; do
  [ -e "tests/fuzz/$parser.cpp" ] || die "fuzz_parsers: no parser $parser" "There are: $(cd tests/fuzz && basename -s .cpp -- *.cpp | paste -sd ' ')"
done

configure fuzz
compile fuzz --target "${parsers[@]/#/fuzz_}"

fuzz() {
  local parser=$1 kept=build/fuzz/corpus/$1 log=build/fuzz/$1.log
  mkdir -p "$kept"
  # Twice as fast as with ASan's defaults. Freed memory stays poisoned within the last 8 MiB, and a
  # report does not say where memory was allocated: the program with the input alone does.
  local asan=quarantine_size_mb=8:malloc_context_size=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
  if ASAN_OPTIONS=$asan "build/fuzz/bin/fuzz_$parser" "$limit" -max_len=65536 -timeout=10 -malloc_limit_mb=256 \
    -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$parser-" "$kept" "tests/fuzz/corpus/$parser" >"$log" 2>&1; then
    say "$parser: $(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log") inputs, no failure"
  else
    say "$parser: FAILED; the input is $(sed -n 's/.*Test unit written to //p' "$log"), the report $log"
    return 1
  fi
}

failed=0 running=0
for parser in "${parsers[@]}"; do
  if ((running == $(cores))); then
    wait -n || failed=1
  else
    ((++running))
  fi
  fuzz "$parser" &
done
for ((; running > 0; --running)); do wait -n || failed=1; done
exit $failed
