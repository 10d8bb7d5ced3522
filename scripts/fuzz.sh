#!/usr/bin/env bash
# Compares meshes with one rank, tensor by tensor, with all flags drawn at random.
#
#   scripts/fuzz.sh [N [SEED]]
#
#   N      draws, 200 if not given; the tests make 20 of their own
#   SEED   others for each, 1 if not given

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-200} in
  -h | --help) usage scripts/fuzz.sh && exit ;;
  -*) die "fuzz: unknown option $1" "Options: --help; N, a number of draws" ;;
  *[!0-9]*) die "fuzz: $1 is no number of draws" ;;
esac
scripts/setup.sh
build release --target minigpt
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/examples/fuzz.py build/release/bin/minigpt "${1:-200}" "${2:-1}"
