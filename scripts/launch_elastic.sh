# shellcheck shell=bash
# scripts/launch.sh --elastic: on which hosts, how many ranks and which mesh a job starts.
# Sourced by launch.sh after launch_restarts.sh; uses the variables, codes and functions of both.
# shellcheck disable=SC2154,SC2034

# answers HOST: could mpirun start its daemon there? By the agent that mpirun uses.
answers() {
  local agent=${OMPI_MCA_plm_rsh_agent:-ssh}
  # shellcheck disable=SC2086 # it may have words
  [[ " $own_names " == *" $1 "* ]] || timeout -k 1 5 ${agent%%:*} "$1" true </dev/null >/dev/null 2>&1
}

# The lines of the hosts file whose hosts answer, in their order.
answering() {
  local line i=0
  while read -r line || [ -n "$line" ]; do
    line=${line%%#*}
    [[ $line =~ [^[:space:]] ]] || continue
    if answers "${line%%[[:space:]]*}"; then
      echo "$i $line"
    else
      printf 'launch: %s does not answer\n' "${line%%[[:space:]]*}" >&"$stderr"
    fi &
    ((++i))
  done <"$hosts_file"
  wait
}

# lost_a_host LINES: does one of these lines of the hosts file no longer count?
lost_a_host() {
  local line
  while read -r line; do
    [[ $'\n'$answered$'\n' == *$'\n'"$line"$'\n'* ]] || return 0
  done <<<"$1"
  return 1
}

# choose_mesh RANKS: the program says which mesh it takes on at most RANKS ranks. The batch stays
# that of the first time, when it was asked about all.
choose_mesh() {
  local said status=0
  said=$("${command[@]}" "${batch[@]}" --mesh-for "$1" </dev/null) || status=$?
  ((status <= 128)) || after_signal $((status - 128)) "${command[0]} --mesh-for $1"
  ((status == 0)) || exit "$status" # it has told why
  [[ $said =~ ^[1-9][0-9]*(\ --(dp|pp|ep|cp|tp)\ [0-9]+)+(\ --(micro|global)-batch\ [0-9]+){2}$ ]] ||
    report "$bad_config" "--elastic, but ${command[0]} does not say which mesh it takes on $1 ranks" \
      "A program on triax does: ${command[0]} train --mesh-for $1"
  read -ra mesh <<<"$said"
  ranks=${mesh[0]} mesh=("${mesh[@]:1}")
}

# take all|left|same: sets hosts, ranks, mesh and the options of mpirun to what there is now, without
# hosts that do not answer: `all` of it; or without as many ranks as were lost so far, of which `left`
# adds one if its host still answers. Fails if that is too little.
take() {
  local before=$answered room
  [ "$remesh" = no ] || set -- all # asked for since the job ended
  remesh=no
  if [ -n "$hosts_file" ]; then
    hosts=$hosts_file
    check_hosts "no such file any more"
    answered=$(answering | sort -n | cut -d ' ' -f 2-)
    make_files
    hosts=$files/hosts
    printf '%s\n' "$answered" >"$hosts"
  fi
  case $1 in
    all) gone=0 ;;
    left) lost_a_host "$before" || ((++gone)) ;;
  esac
  room=$most
  if [ -n "$hosts_file" ]; then
    room=$(slots_of_hosts)
    [ -n "$room" ] || report "$bad_config" "--elastic, but a line of $hosts_file has no slots=" \
      "Each line says how many ranks a host takes: NAME slots=RANKS"
    ((room < most)) || room=$most
  fi
  ((room <= least)) || room=$((room - gone > least ? room - gone : least))
  ranks=0
  ((room == 0)) || choose_mesh "$room"
  ((ranks >= least)) || return 1
  threads=$own_threads
  [ -n "$threads" ] || unset OMP_NUM_THREADS # of the start before
  choose_options
  options+=(--mca odls_base_sigkill_timeout 0) # once one is lost, no other rank has anything to save
}

# Did the job end because SIGUSR2 asked for another mesh? 138, or mpirun's own 0: before it could save.
# A run that had just finished ends at once when it is started again.
remeshes() { [ "$remesh" = yes ] && [ "$stop" = 0 ] && [[ $code =~ ^(0|75|138)$ ]]; }

# As `again`, on the ranks that are left, and without a pause unless two starts in a row saved no checkpoint.
again_elastic() {
  local seconds=0 what=left title how="the same command, no new checkpoint yet"
  look_for_progress
  if remeshes; then
    title=re-mesh
  else
    [ "$code" != 0 ] && [ "$code" != "$stopped" ] && worth_a_restart || return 1
    title="restart $((++restarted)) of $restarts"
    ((stuck < 2)) || seconds=$((1 << (stuck < 7 ? stuck - 2 : 5)))
  fi
  if [ "$stuck" = 0 ]; then
    resume_newest last-good
    how="--resume last-good, newest checkpoint ${saved##*/}"
  fi
  [ "$remesh" = no ] || what=all
  pause $seconds && end_if_asked
  until take $what; do
    what=same
    ((restarted < restarts)) || refuse "there are ${ranks/#0/no} ranks, fewer than $least" || return 1
    title="restart $((++restarted)) of $restarts"
    seconds=$((seconds == 0 ? 1 : seconds < 32 ? 2 * seconds : 32))
    printf 'launch: too few ranks; looking again in %d s\n' $seconds >&"$stderr"
    pause $seconds && end_if_asked
  done
  end_if_asked
  printf 'launch: %s: %s; %d ranks: %s\n' "$title" "$how" "$ranks" "${mesh[*]:0:${#mesh[@]}-4}" >&"$stderr"
}

# Before the first start.
begin_elastic() {
  next=again_elastic
  patience=-1 # another mesh may get further
  choose_mesh "$most"
  batch=("${mesh[@]: -4}")
  take all || report "$peer_lost" "the hosts that answer have room for ${ranks/#0/no} ranks, fewer than $least" \
    "--hosts $hosts_file says which they are; each must answer without a password: ssh HOST true"
}

{ whole_number "$least" && ((least <= ranks)); } ||
  report "$usage_error" "-n $least:$ranks; expected MIN:MAX, from 1 to as many ranks as there may be"
[ "$restarts" != 0 ] || report "$usage_error" "--elastic without --restarts" \
  "It says how a job starts again; --restarts N says how often."
own_names="localhost 127.0.0.1 $(uname -n) $(uname -n | cut -d . -f 1) $(hostname -I 2>/dev/null || true)"
own_threads=${threads:-${OMP_NUM_THREADS:-}}
most=$ranks gone=0 batch=() hosts_file=$hosts answered=''
