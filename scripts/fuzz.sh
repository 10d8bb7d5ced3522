#!/usr/bin/env bash
# Compares meshes with one rank, tensor by tensor, with all flags drawn at random.
#
#   scripts/fuzz.sh [N]
#
#   N   draws, 200 if not given; the tests make 20 of them

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-200} in
  -h | --help) usage scripts/fuzz.sh && exit ;;
  -*) die "fuzz: unknown option $1" "Options: --help; N, a number of draws" ;;
  *[!0-9]*) die "fuzz: $1 is no number of draws" ;;
esac
scripts/setup.sh
build release --target test_examples
TRIAX_FUZZ=${1:-200} build/release/bin/test_examples --gtest_filter=Parity.RandomCombinations
