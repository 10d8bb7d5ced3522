#!/usr/bin/env bash
# Builds triax with clang, without CUDA, and runs the tests: a second opinion, by hand.
#
#   scripts/clang.sh [CTEST OPTIONS]
#
# The build is in build/clang.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/clang.sh && exit ;; esac
have clang++ || die "clang: no clang++ here" "apt-get install clang"

scripts/setup.sh
build clang
run_tests clang "$@"
