#!/usr/bin/env bash
# How a run under mpirun ends when a rank fails: within 3 s, with the right code, and with one
# report that names what happened. usage: mpi_failures.sh TEST_MPI
set -u
program=$1
mpirun=(mpirun -q -np 3 --oversubscribe --bind-to none)
[[ $(id -u) == 0 ]] && mpirun+=(--allow-run-as-root)
failed=0

# expect MODE CODE TEXT...: the code, every text, and exactly one report. mpirun itself needs a second
# now and then to end the ranks after the first report, and others follow: then it is run again.
expect() {
  local mode=$1 code=$2 start text output reports got
  shift 2
  for _ in 1 2 3 4; do
    start=$(date +%s%N)
    output=$("${mpirun[@]}" "$program" "$mode" 2>&1)
    got=$?
    reports=$(grep -c '^triax: error' <<<"$output")
    ((reports > 1)) || break
  done
  local took=$((($(date +%s%N) - start) / 1000000))
  local problem=""
  [[ $got == "$code" ]] || problem+=" exit code $got, expected $code;"
  ((took < 3000)) || problem+=" took $took ms;"
  for text in "$@"; do
    grep -qF -- "$text" <<<"$output" || problem+=" no '$text';"
  done
  [[ $mode == killed_rank || $reports == 1 ]] || problem+=" $reports reports;"
  if [[ $problem ]]; then
    printf 'FAILED %s:%s\n%s\n' "$mode" "$problem" "$output"
    failed=1
  fi
}

for window in on off; do
  export TRIAX_WINDOW=$window
  expect mismatch 76 "ranks disagree, group world {0, 1, 2}, call 3" "rank 1: all_gather(f32[4096])" \
    ": all_reduce(sum, f32[8192])" "tests/parallel/mpi_main.cpp:" "Last call that matched: 2"
  expect mismatched_message 76 "rank 0: send(f32[64], to 1)" "rank 1: recv(f32[32], from 0)"
  expect failing_rank 65 "triax: error 65: the error of rank 1"
  expect common_error 78 "triax: error 78: the same on every rank" "  with a second line"
  TRIAX_TIMEOUT=0.5 expect missing_rank 72 "all_reduce(sum, f32[4])" "waiting for rank 1"
  # Time in which ranks were suspended does not count.
  output=$(TRIAX_TIMEOUT=0.7 "${mpirun[@]}" "$program" suspended 2>&1) && [[ $output == *"went on"* ]] || {
    printf 'FAILED suspended:\n%s\n' "$output"
    failed=1
  }
  expect killed_rank 137
  expect out_of_memory 71 "triax: error 71: "
  expect unwinding 74 "triax: error 74: while in flight"
done
expect no_such_mode 64 "test_mpi: which mode?"

# A launcher that announced more ranks than there are.
alone=$(mktemp)
OMPI_COMM_WORLD_SIZE= SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 "$program" cases >"$alone" 2>&1
[[ $? == 78 ]] && grep -q "announced 4 ranks" "$alone" || {
  echo "FAILED: a lost launcher was not noticed" && cat "$alone"
  failed=1
}
rm -f "$alone"
exit $failed
