#!/usr/bin/env bash
# Builds triax and runs every test.
#
#   scripts/test.sh [CTEST OPTIONS]
#
#   scripts/test.sh               everything
#   scripts/test.sh -R autograd   tests whose name matches
#   scripts/test.sh -V -R corpus  with their output
#
# What is missing is installed first (scripts/setup.sh). The build is in build/release.

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/test.sh && exit ;; esac

scripts/setup.sh
build release
run_tests release "$@"
