#!/usr/bin/env bash
# Checks triax on this machine's GPU: right, fast, and beside PyTorch. The most valuable parts first.
#
#   scripts/gpu_check.sh [OPTIONS]
#
#   --out DIR      log, results.json, gpu.md and what has passed; default: runs/gpu-check
#   --only A,B     these parts, also where they have passed before
#   --skip A,B     not these
#   --all          also the parts that do not fit into twice ten minutes
#   --limit S      no part may take longer than S seconds
#   --within S     start no part that may end more than S seconds from now; the same command goes on
#                  later. Default: 590, with --all or --only without end
#   --bundle FILE  packages of scripts/offline_bundle.sh, on a machine without a network
#   --build DIR    programs that are there already; default: build/release, built if it is empty
#   --python FILE  an interpreter with PyTorch; default: python3
#   --list         the parts: name, seconds it may take, when it is run, what it shows
#
# A part that has passed in DIR is not run again unless it is named, so what was cut off goes on where
# it was. Everything is written to DIR/log; a table stands last. Exit status 1 if any part failed or
# ran out of time. What this machine cannot show is said, with the command. More: docs/gpu.md

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# Name, seconds, `first` (in the first two calls of ten minutes), `more` (with --all) or `if-needed`, what it shows.
readonly parts=(
  "build     1500 if-needed minigpt, bench_cuda_kernels and test_on_gpu are built, where minigpt is not there"
  "device      60 first the GPU, its driver and libraries; minigpt finds it"
  "kernels    180 first kernels against the CPU, gradients, attention, graphs, loss scaling, NCCL of one rank"
  "speed      450 first GPT-2 124M beside PyTorch, eager and compiled, and what it must reach"
  "meshes     150 first four ranks on one GPU reproduce one, as threads and over MPI"
  "ceilings    45 first what products, attention and each kernel reach, beside a copy"
  "loss       100 first 50 steps from the same weights: the loss of PyTorch in bf16"
  "sanitize   600 more compute-sanitizer, memcheck and racecheck, over triax's own kernels"
  "large      500 more GPT-2 350M, 774M and 1.5B once, beside torch.compile"
  "batches   1800 more 124M at B 64, 32 and 4 in bf16 and fp16, beside PyTorch"
  "nccl       120 more ranks with a GPU each over NCCL reproduce one"
  "multi     1300 more the first day of several GPUs: schedules, kills, graphs, bits and speed over NCCL"
  "peers       60 more tensors between the GPUs of one process"
)
parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      --out | --only | --skip | --limit | --within | --bundle | --build | --python)
        [ $# -ge 2 ] || die "gpu_check: $1 has no value" ;;&
      --out) out=$(from_caller "$2") ;;
      --only) only=$2 ;;
      --skip) skip=$2 ;;
      --limit | --within)
        [[ $2 =~ ^[1-9][0-9]*$ ]] || die "gpu_check: $1 $2; expected seconds"
        if [ "$1" = --limit ]; then most=$2; else within=$2; fi
        ;;
      --bundle) bundle=$(from_caller "$2") ;;
      --build) build=$(from_caller "$2") ;;
      --python) python=$2 ;;
      --all) all=yes && shift && continue ;;
      --list) printf '%s\n' "${parts[@]}" && exit ;;
      -h | --help) usage scripts/gpu_check.sh && exit ;;
      *) die "gpu_check: unknown option $1" "Options: --out, --only, --skip, --all, --limit, --within, --bundle," \
        "--build, --python, --list, --help" ;;
    esac
    shift 2
  done
}

from_caller() { [[ $1 == /* ]] && echo "$1" || echo "$caller/$1"; }

# among NAME LIST: is it one of A,B,C?
among() { [[ ,$2, == *",$1,"* ]]; }

check_names() {
  local name names=
  for name in "${parts[@]}"; do names+=,${name%% *}; done
  for name in ${only//,/ } ${skip//,/ }; do
    among "$name" "$names" || die "gpu_check: there is no part $name" "Parts: ${names#,}"
  done
}

# wanted NAME WHEN: is it to be run now?
wanted() {
  if among "$1" "$skip"; then return 1; fi
  if [ -n "$only" ]; then
    among "$1" "$only"
    return
  fi
  [[ $(cat "$out/parts/$1" 2>/dev/null) != ok\ * ]] || return 1
  case $2 in
    first) ;;
    more) [ $all = yes ] ;;
    if-needed) [ ! -x "$build/bin/minigpt" ] ;;
  esac
}

# A text to train on: this repository's own sources.
text() {
  [ ! -s "$out/text.txt" ] || return 0
  find core autograd nn optim parallel examples docs -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.md' \) |
    LC_ALL=C sort | xargs cat | LC_ALL=C tr -cd '\11\12\40-\176' >"$out/text.txt"
}

use_bundle() {
  [ -n "$bundle" ] || return 0
  [ -f "$bundle" ] || die "gpu_check: there is no bundle $bundle" "scripts/offline_bundle.sh makes one"
  mkdir -p "$out/bundle"
  tar -C "$out/bundle" -xf "$bundle"
  local environment
  environment=$("$out/bundle/offline/unpack.sh" "$out/bundle/prefix")
  # Its libraries are for triax and mpirun (gpu_part.sh); PyTorch and nvidia-smi have their own.
  local before=${LD_LIBRARY_PATH-}
  eval "$environment"
  export TRIAX_CHECK_LIBRARIES=${LD_LIBRARY_PATH-}
  if [ -n "$before" ]; then export LD_LIBRARY_PATH=$before; else unset LD_LIBRARY_PATH; fi
}

# run NAME SECONDS: runs a part under its limit and notes how it ended.
run() {
  local name=$1 limit=$(($2 < most ? $2 : most)) status=0 began=$SECONDS result
  rm -f "$out/parts/$name" "$out/parts/$name.why"
  say "$name: at most $limit s"
  printf '\n==> %s, %s\n' "$name" "$(date -Is)" >>"$out/log"
  timeout --kill-after=10 "$limit" scripts/gpu/gpu_part.sh "$name" "$out" "$build" "$python" \
    >>"$out/log" 2>&1 </dev/null &
  child=$!
  wait "$child" || status=$?
  child=
  case $status in
    0) result=ok ;;
    200) result=not-shown ;; # as scripts/gpu/gpu_part.sh has it
    124 | 137) result=timed-out ;;
    *) result=failed ;;
  esac
  echo "$result $((SECONDS - began))" >"$out/parts/$name"
  printf '==> %s: %s (exit status %s)\n' "$name" "$result" "$status" >>"$out/log"
  case $result in failed | timed-out) tail -n 15 "$out/log" ;; esac
}

# row NAME SECONDS WHEN: how it stands, as a line of the table.
row() {
  local result=not-shown seconds=0 why="scripts/gpu_check.sh --only $1"
  if [ -f "$out/parts/$1" ]; then
    read -r result seconds <"$out/parts/$1"
    why=$(cat "$out/parts/$1.why" 2>/dev/null || true)
  elif [ "$3" = if-needed ]; then
    return 0
  fi
  case $result in failed | timed-out) failed=1 why="see $out/log" ;; esac
  printf '%-9s %-10s %7s  %s\n' "$1" "${result/-/ }" "$seconds" "$why"
}

table() {
  local line name seconds when _
  printf '\n%-9s %-10s %7s  %s\n' part result seconds why
  for line in "${parts[@]}"; do
    read -r name seconds when _ <<<"$line"
    row "$name" "$seconds" "$when"
  done
}

# What is known so far, as a table, results.json and gpu.md.
report() {
  failed=0
  table >"$out/table"
  "$python" bench/gpu/gpu_table.py "$out" || die "gpu_check: gpu_table.py failed"
}

main() {
  out=$root/runs/gpu-check only='' skip='' bundle='' build=$root/build/release python=python3 all=no
  most=86400 within='' later=''
  local line name seconds when _
  parse "$@"
  if [ -z "$within" ]; then
    within=590
    [ $all = no ] && [ -z "$only" ] || within=86400000
  fi
  check_names
  mkdir -p "$out/parts"
  child='' failed=0
  trap '[ -z "$child" ] || kill "$child"; exit 130' INT TERM
  use_bundle
  text
  for line in "${parts[@]}"; do
    read -r name seconds when _ <<<"$line"
    wanted "$name" "$when" || continue
    if [ "$when" = if-needed ]; then
      run "$name" "$seconds"
      SECONDS=0 # what is within the limit comes after building
      continue
    fi
    if ((SECONDS + (seconds < most ? seconds : most) > within)); then
      later+=" $name"
      continue
    fi
    run "$name" "$seconds"
    report # what is cut off here leaves it
  done
  report
  tee -a "$out/log" <"$out/table"
  say "log, results.json and gpu.md are in $out"
  [ -z "$later" ] || say "not begun, for they may not end within $within s:$later; the same command goes on"
  exit $failed
}

main "$@"
