#!/usr/bin/env bash
# Shows that `parity` of minigpt and llama finds faults: plants them one by one and compares what it says.
#
#   scripts/faults.sh [--list] [--from NAME] [NAME ...]
#
#   scripts/faults.sh                      every fault, then meshes without one
#   scripts/faults.sh leave_without_sum    this one
#   scripts/faults.sh meshes               only the meshes
#   scripts/faults.sh --from NAME          this one and all after it
#
# The faults, and what must be said of each, are in tests/faults. They are planted in a copy, in
# build/faults; the product has no switch for them. A line for each; the exit status is 0 only if
# every fault was found and named as its table says, and no mesh without a fault gave an alarm.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

for arg in "$@"; do
  case $arg in
    -h | --help) usage scripts/faults.sh && exit ;;
    --list | --from) ;;
    -*) die "faults: unknown option $arg" "Options: --list, --from NAME, --help" ;;
  esac
done

PYTHONDONTWRITEBYTECODE=1 exec python3 tests/faults/run.py . build/faults "$@"
