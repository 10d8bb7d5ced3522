#!/usr/bin/env bash
# Counts how often triax keeps its promises about failures: killed ranks, damaged files, failing
# disks, ranks that disagree, hostile input, growth.
#
#   scripts/campaign.sh [--long] [--tiny] [--only NAME].. [--seed S]
#
#   --long        the full counts and the sanitizers: a day; without it a quarter of an hour on two
#                 cores, and building
#   --tiny        one to three of each, as the tests do
#   --only NAME   this promise
#   --seed S      its run with this seed, once: what a failure prints
#
# A line of a table for each. Logs of what failed stay in build/campaign/. The exit status is 0 only
# if every promise was kept every time. Results: docs/reliability.md

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

words=()
while [ $# -gt 0 ]; do
  case $1 in
    --long | --short | --tiny) words+=("$1") ;;
    --only | --seed) words+=("$1" "${2:?campaign: $1 needs a value}") && shift ;;
    -h | --help) usage scripts/campaign.sh && exit ;;
    *) die "campaign: unknown option $1" "Options: --long, --tiny, --only NAME, --seed S, --help" ;;
  esac
  shift
done

targets=(minigpt llama resnet test_parallel fail_call)
! have mpirun || targets+=(test_mpi)
build release --target "${targets[@]}"
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/campaign/run.py build/release/bin "${words[@]}"
