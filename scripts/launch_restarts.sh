# shellcheck shell=bash
# scripts/launch.sh --restarts: whether a job that failed starts again, and from which checkpoint.
# Sourced by launch.sh, whose variables and codes it reads.
# shellcheck disable=SC2154

# value_of FLAG: what the program gets for it, --FLAG VALUE or --FLAG=VALUE; the last one counts.
value_of() {
  local i value=''
  for ((i = 0; i < ${#command[@]}; ++i)); do
    case ${command[i]} in
      "--$1") value=${command[i + 1]:-} ;;
      "--$1="*) value=${command[i]#*=} ;;
    esac
  done
  printf '%s' "$value"
}

# The checkpoint that was saved last, behind the time of that: a step may be saved once more.
last_saved() {
  find -L "$(value_of out)/" -maxdepth 2 -regex '.*/step-[0-9]+/manifest\.json' -printf '%T@ %h\n' 2>/dev/null |
    sort -n | tail -n 1 || true
}

# resume_newest auto|last-good: puts that in the place of any other --resume. last-good stays: it was
# asked for because the directory holds damaged checkpoints, at which auto stops.
resume_newest() {
  local i words=()
  [ "$(value_of resume)" != last-good ] || return 0
  for ((i = 0; i < ${#command[@]}; ++i)); do
    case ${command[i]} in
      --resume) ((++i)) ;;
      --resume=*) ;;
      *) words+=("${command[i]}") ;;
    esac
  done
  command=("${words[@]}" --resume "$1")
}

# pause SECONDS: a signal ends it, as on_signal kills `job`.
pause() {
  sleep "$1" &
  job=$!
  [ "$stop" != 0 ] || wait $job || wait $job || true
  kill $job || true # a signal that came before `job` was known
  job=''
} 2>/dev/null

# refuse WHY: one more line of the report.
refuse() {
  printf '  Not restarted: %s.\n' "$1" >&"$stderr"
  return 1
}

worth_a_restart() {
  if [ "$stop" != 0 ]; then
    refuse "signal $stop asked the job to stop"
  elif [ "$code" != "$peer_lost" ] && [ "$code" != $((128 + 9)) ]; then
    refuse "only lost and killed ranks (72, 137) are worth another start"
  elif ((stuck == patience)); then
    refuse "two starts in a row saved no new checkpoint"
  elif ((restarted == restarts)); then
    refuse "all restarts ($restarts) are used"
  fi
}

# Counts starts in a row that saved nothing.
look_for_progress() {
  local newest
  newest=$(last_saved)
  if [ "$newest" = "$saved" ]; then ((++stuck)); else stuck=0; fi
  saved=$newest
}

# Between two starts: a signal has ended the job.
end_if_asked() {
  [ "$stop" = 0 ] || [ -z "$saved" ] || report "$stopped" "stopped by signal $stop before the restart" \
    "A training goes on from its newest checkpoint, ${saved##*/}, with --resume auto."
  [ "$stop" = 0 ] || report $((128 + stop)) "stopped by signal $stop before the restart, with nothing saved"
}

# Prepares the next start, after a pause that grows; fails if the job has ended for good. What the
# program was told to resume from holds until the job has saved a checkpoint of its own.
again() {
  local how="the same command, no new checkpoint yet" seconds=$((1 << (restarted < 5 ? restarted : 5)))
  [ "$code" != 0 ] && [ "$code" != "$stopped" ] || return 1
  look_for_progress
  worth_a_restart || return 1
  if [ $stuck = 0 ]; then
    resume_newest auto
    how="--resume $(value_of resume), newest checkpoint ${saved##*/}"
  fi
  printf 'launch: restart %d of %d in %d s: %s\n' $((++restarted)) "$restarts" "$seconds" "$how" >&"$stderr"
  pause $seconds
  end_if_asked
}

[ -n "$(value_of out)" ] || report "$usage_error" "--restarts $restarts, but the program is given no --out DIR" \
  "A restart goes on from the newest checkpoint in that directory."
restarted=0 stuck=0 patience=2 saved=$(last_saved)
