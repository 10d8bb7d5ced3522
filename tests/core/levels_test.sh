#!/bin/sh
# levels_test.sh LEVEL OBJECT...
# The kernel files are compiled once per instruction level. A weak function that several objects
# define is linked from any one of them: a copy compiled for AVX-512 could then run on a machine
# without it. So the objects of a level define none outside the level's own namespace.
set -eu
level=$1
shift
test $# -gt 0 || { echo "levels: no objects of level $level"; exit 1; }
# Defined symbols have an address in front of their letter; W, V and u are weak. DW.ref.* is a
# pointer for the unwinder: data, the same at every level. __clang_call_terminate calls two functions
# and has no vector in it.
symbols=$(nm -C --defined-only --print-file-name "$@")
found=$(echo "$symbols" | grep -E ':[0-9a-f]+ [WVu] ' |
  grep -v -e "host::$level::" -e 'DW\.ref\.' -e ' __clang_call_terminate$' || true)
if [ -n "$found" ]; then
  echo "levels: weak symbols in objects compiled for $level (see core/cpu/cpu.h):"
  echo "$found"
  exit 1
fi
echo "levels: $# objects of $level define no weak symbol of their own"
