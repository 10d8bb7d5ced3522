#!/usr/bin/env bash
# hidden_test.sh ARCHIVE PREFIX: functions PREFIX* are defined in ARCHIVE, and none can become a
# dynamic symbol of a program or library that it is linked into.
set -euo pipefail
defined=$(readelf -Ws "$1" | awk -v name="^$2" '$4 == "FUNC" && $5 != "LOCAL" && $7 != "UND" && $8 ~ name {print $6, $8}')
[ -n "$defined" ] || { echo "$1 defines no $2*"; exit 1; }
if visible=$(grep -v "^HIDDEN " <<<"$defined"); then
  echo "visible in $1:"; echo "$visible"
  exit 1
fi
