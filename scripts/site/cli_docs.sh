#!/usr/bin/env bash
# Writes docs/cli.md, the table of all flags of minigpt and their defaults, from the program itself.
#
#   scripts/site/cli_docs.sh [MINIGPT]          default: build/release/bin/minigpt

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
page=$("${1:-$root/build/release/bin/minigpt}" flags)
printf '%s\n' "$page" >"$root/docs/cli.md"
