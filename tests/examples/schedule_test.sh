#!/usr/bin/env bash
# The schedule program as a user runs it, and whether docs/drawings is what it draws.
#
#   schedule_test.sh SCHEDULE

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
schedule=$1
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT

failures=0
failed() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}

# prints NAME FLAGS...: standard output is what stands on standard input.
prints() {
  local name=$1
  shift
  diff -u - <("$schedule" "$@") >&2 || failed "$name prints something else"
}

# refuses CODE TEXT FLAGS...
refuses() {
  local code=$1 text=$2 said status=0
  shift 2
  said=$("$schedule" "$@" 2>&1) || status=$?
  [ $status = "$code" ] || failed "$*: exit status $status, expected $code"
  [[ $said == *"$text"* ]] || failed "$*: it said '$said', expected '$text'"
}

prints zb-h1 --schedule zb-h1 --stages 2 --micros 3 <<'END'
zb-h1: 2 stages, 3 micro-batches

stage 0   F0 F1 .  I0 W0 F2 I1 W1 I2 W2  live at most 2
stage 1   .  F0 I0 F1 I1 W0 F2 I2 W1 W2  live at most 2

bubble 1 of 10 (10%); live: activations of micro-batches
F forward, I backward of the input, W backward of the weights, . idle
END

prints interleaved --schedule interleaved --stages 2 --micros 2 --chunks 2 <<'END'
interleaved: 2 stages of 2 chunks, 2 micro-batches

stage 0   F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a----  live at most 4
stage 1   .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a---- .   .    live at most 3

bubble 1.5 of 7.5 (20%); live: activations of micro-batches in one chunk
F forward, B backward, . idle
END

prints mesh --mesh 1x2x1 <<'END'
mesh: dp 1 x pp 2 x tp 1 = 2 ranks
  pp    {0, 1}
END

prints zero --zero 4 <<'END'
4 ranks, f32, AdamW, 2 micro-batches a step

ZeRO 0: each rank holds 16 bytes and sends 1.5 floats per parameter
ZeRO 1: each rank holds 10 bytes and sends 1.5 floats per parameter
ZeRO 2: each rank holds 7 bytes and sends 2.25 floats per parameter
ZeRO 3: each rank holds 4 bytes and sends 4.5 floats per parameter
END

refuses 78 "schedule: unknown name \`1f2b\`; expected one of gpipe, 1f1b" --schedule 1f2b
refuses 78 "schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved" --chunks 2
refuses 64 "--micros" --micros 0
refuses 64 "--stages" --stages many
refuses 64 "--zero" --zero 9
refuses 64 "--tensor" --tensor 1
refuses 78 "tensor-parallel ranks" --tensor 3
refuses 64 "--speed" --speed 9
for mesh in 2x2 2x2x2x2 0x1x1 axbxc 99x99x99 2x2x2-; do
  refuses 64 "--mesh: \`$mesh\`; expected DPxPPxTP of at most 256 ranks, like 2x2x2" --mesh $mesh
done
refuses 73 "/no/such/directory" --svg /no/such/directory/drawing.svg

"$root/scripts/drawings.sh" "$schedule" "$made"
diff -rq "$root/docs/drawings" "$made" >&2 || failed "docs/drawings is old; the cure: scripts/drawings.sh"
[ $failures = 0 ]
