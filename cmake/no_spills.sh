#!/bin/sh
# no_spills.sh COMPILER ARGUMENTS...: compile; fail if ptxas says that a kernel's registers spill.
# Kernels of f64 may: they are for gradient checks, and calls inside their divisions cost registers.
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" 2> "$log"
status=$?
spills=$(grep 'Registers are spilled' "$log" | c++filt | grep -v 'double')
grep -v 'Registers are spilled' "$log" >&2
if [ -n "$spills" ]; then
  echo "registers spill to memory; expected none in kernels that are not of f64:" >&2
  echo "$spills" >&2
  exit 1
fi
exit $status
