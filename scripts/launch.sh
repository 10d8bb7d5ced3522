#!/usr/bin/env bash
# Starts a triax program on many ranks, on this host or several, through mpirun.
#
#   scripts/launch.sh -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]
#
#   -n N              ranks; with --elastic the most, or MIN:MAX
#   --hosts FILE      hosts, one a line: `NAME slots=RANKS`; default: this one, or what Slurm gave
#   --threads N       threads of each rank; default: OMP_NUM_THREADS, or its share of the cores
#   --bind core|none  whether each rank stays on cores of its own; default: none
#   -x NAME[=VALUE]   export this variable to every host as well; may be repeated
#   --restarts N      start again, at most N times, from the newest checkpoint in the program's
#                     --out DIR when a rank was lost or killed (72, 137); default: 0
#   --elastic         with --restarts: on the ranks and hosts that are left, on the mesh that the
#                     program chooses. SIGUSR2: save, read the hosts file again, go on with all
#
#   scripts/launch.sh -n 8 -- build/release/bin/minigpt train --out runs/mine
#
# What fails is reported once, last on stderr, in at most 12 lines; the exit status is the program's
# own, 128 + n if a rank ended by signal n. SIGTERM, SIGINT and SIGHUP ask the program to stop (as
# SIGUSR1 on every rank); the second one ends it at once. No process is left behind. As a rank of a
# job that is as large, under srun for one, it only becomes PROGRAM. More: docs/launching.md

# Needs no other file, for --restarts launch_restarts.sh and for --elastic launch_elastic.sh. All three are
# installed, and this one is triax-launch there.
set -euo pipefail
exec {stderr}>&2
remesh=no
trap 'remesh=yes' USR2 # may come before --elastic has begun

environment=$'\n'$(compgen -e)$'\n'
readonly environment usage_error=64 not_found=66 internal=70 peer_lost=72 no_write=73 stopped=75 bad_config=78
# Variables that every host gets: those of triax, OpenMP, CUDA and its libraries, NCCL, UCX and libfabric.
readonly exported='^((TRIAX|G?OMP|CUDA|CUBLAS|CUBLASLT|CUDNN|NCCL|UCX|FI)_.*|NVIDIA_TF32_OVERRIDE|LD_LIBRARY_PATH)$'
readonly least_room=9216 # KiB, without which Open MPI cannot start ranks on one host

# report CODE WHAT [LINE]...: the one report of a job that has none of its own, and the end.
report() {
  local code=$1
  printf 'triax: error %d: launch: %s\n' "$code" "$2" >&"$stderr"
  shift 2
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&"$stderr"
  exit "$code"
}

usage() { sed -n '2,/^$/ { s/^# \{0,1\}//; p; }' "${BASH_SOURCE[0]}"; } # the comment at the top

# What mpirun counts as slots: cores, not hardware threads.
physical_cores() { { lscpu -p=core,socket 2>/dev/null || true; } | sed '/^#/d' | sort -u | wc -l; }

whole_number() { [[ $1 =~ ^[1-9][0-9]{0,5}$ ]]; }

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      -n | --hosts | --threads | --bind | --restarts | -x)
        [ $# -ge 2 ] || report $usage_error "$1 has no value" "scripts/launch.sh --help says more." ;;&
      -n) ranks=$2 ;;
      --hosts) hosts=$2 ;;
      --threads) threads=$2 ;;
      --bind) bind=$2 ;;
      --restarts) restarts=$2 ;;
      -x) export_too "$2" ;;
      --elastic) elastic=yes && shift && continue ;;
      -h | --help) usage && exit ;;
      --) shift && break ;;
      -*) report $usage_error "unknown option $1" \
        "Options: -n, --hosts, --threads, --bind, --restarts, --elastic, -x, --help" \
        "What is meant for the program stands behind its name." ;;
      *) break ;;
    esac
    shift 2
  done
  command=("$@")
}

# export_too NAME[=VALUE]
export_too() {
  local name=${1%%=*}
  [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || report $usage_error "-x $1; expected NAME or NAME=VALUE"
  [[ $1 == *=* || $environment == *$'\n'$name$'\n'* ]] || report $usage_error \
    "-x $name, but the environment has no such variable" "-x $name=VALUE sets it."
  extra+=("$name")
  [[ $1 != *=* ]] || values+=("$1") # mpirun's: they would change variables of this script
}

check() {
  [ -n "$ranks" ] || report $usage_error "how many ranks? -n is not given" \
    "For example: scripts/launch.sh -n 8 -- build/release/bin/minigpt train"
  [ $elastic = no ] || [[ $ranks != *:* ]] || { least=${ranks%%:*} ranks=${ranks#*:}; }
  whole_number "$ranks" || report $usage_error "-n $ranks; expected a number of ranks, 1 or more"
  [ -z "$threads" ] || whole_number "$threads" ||
    report $usage_error "--threads $threads; expected a number of threads, 1 or more"
  [[ $bind =~ ^(core|none)$ ]] || report $usage_error "--bind $bind; expected core or none"
  [ ${#command[@]} -gt 0 ] || report $usage_error "no program" \
    "For example: scripts/launch.sh -n 8 -- build/release/bin/minigpt train"
  [ "$restarts" = 0 ] || whole_number "$restarts" ||
    report $usage_error "--restarts $restarts; expected how often the job may start again, 0 or more"
  local scripts
  scripts=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
  # shellcheck source=scripts/launch_restarts.sh
  [ "$restarts" = 0 ] || . "$scripts/launch_restarts.sh"
  # shellcheck source=scripts/launch_elastic.sh
  [ $elastic = no ] || . "$scripts/launch_elastic.sh"
  local program=${command[0]} found
  found=$(type -P -- "$program") || found=$program
  [ -f "$found" ] || report $not_found "no such program: $program" \
    "The build makes it: cmake --preset release && cmake --build --preset release"
  [ -x "$found" ] || report $bad_config "$program cannot be executed"
  [ -z "$hosts" ] || check_hosts "no such file"
  type -P mpirun >/dev/null || report $not_found "there is no mpirun" "Install Open MPI: openmpi-bin of Debian and Ubuntu" \
    "Without MPI, ranks can be threads: minigpt train --comm threads --ranks $ranks"
}

# check_hosts WHAT: is the hosts file one that mpirun can read?
check_hosts() {
  local line word format="It holds one host a line: NAME slots=RANKS"
  { [ -f "$hosts" ] && [ -r "$hosts" ]; } || report $not_found "--hosts $hosts: $1" "$format"
  case $(head -c 3 "$hosts" | od -An -tx1) in
    " ef bb bf") report $bad_config "--hosts $hosts: it begins with a byte-order mark" \
      "mpirun reads text without one: sed -i '1s/^\xef\xbb\xbf//' $hosts" ;;
    " ff fe"* | " fe ff"*) report $bad_config "--hosts $hosts: it is UTF-16" \
      "mpirun reads ASCII: iconv -f UTF-16 -t ASCII $hosts" ;;
  esac
  ! grep -q $'\r' "$hosts" || report $bad_config "--hosts $hosts: its lines end in CR LF" \
    "mpirun reads lines that end in LF: sed -i 's/\r\$//' $hosts"
  read -r line word < <(wrong_word) || return 0
  [ "$line" != none ] || report $bad_config "--hosts $hosts: it names no host" "$format"
  report $bad_config "--hosts $hosts, line $line: \`$word\`; expected NAME slots=RANKS"
}

# The first word of the hosts file that mpirun does not understand or would take for something else,
# behind the number of its line; `none` if there is no word at all.
wrong_word() {
  sed 's/#.*//; s|//.*||; s/[[:space:]]*=[[:space:]]*/=/g' "$hosts" | LC_ALL=C awk '
    function refuse(word) { print NR, word; found = 1; exit }
    BEGIN {
      name = "^[\\^+]?([A-Za-z0-9_.-]+@)?([A-Za-z0-9_.-]+|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)$"
      number = "^(slots|cpu|count|(slots|cpu|count)[-_]max|max[-_](slots|cpu|count)|boards|" \
               "sockets([-_]per[-_]board)?|cores([-_]per[-_]socket)?|port)=[0-9]+$"
    }
    NF { found = 1 }
    NF && $1 != "rank" { # the form of a rankfile
      if ($1 !~ name) refuse($1)
      for (i = 2; i <= NF; ++i) if ($i !~ number && $i !~ /^(user[-_]?name|cpu[-_]set)=./) refuse($i)
    }
    END { if (!NR || !found) print "none" }'
}

# Already a rank, started by srun, or by the mpirun of somebody who put this script behind it?
become_a_rank() {
  local size
  for size in "${OMPI_COMM_WORLD_SIZE:-1}" "${PMI_SIZE:-1}" "${SLURM_STEP_NUM_TASKS:-1}"; do
    [ "$size" = 1 ] && continue
    [ "${ranks:-$size}" = "$size" ] || report $bad_config \
      "-n $ranks, but this already is one of $size ranks that another launcher started" \
      "Leave out -n, or start scripts/launch.sh by itself."
    [ "$restarts" = 0 ] || report $bad_config \
      "--restarts $restarts, but another launcher started this as one of $size ranks" \
      "A rank cannot start the job again. Start scripts/launch.sh by itself; under Slurm: from sbatch."
    [ -z "$threads" ] || export OMP_NUM_THREADS=$threads
    # shellcheck disable=SC2093
    exec "${command[@]}"
  done
}

# How many ranks the hosts have room for; nothing if a line leaves that to mpirun.
slots_of_hosts() {
  sed 's/#.*//' "$hosts" | awk '
    NF && match($0, /[ \t]slots *= *[0-9]+/) { s = substr($0, RSTART, RLENGTH); sub(/.*= */, "", s); sum += s; next }
    NF { open = 1 }
    END { if (!open) print (sum < 1000000 ? sum + 0 : 1000000) }'
}

# Sets `options` of mpirun, and the environment of all ranks.
choose_options() {
  options=(-np "$ranks")
  [ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
  local slots crowded=no share=${threads:-${OMP_NUM_THREADS:-1}}
  [[ $share =~ ^[1-9][0-9]{0,5}(,[1-9][0-9]*)*$ ]] ||
    report $bad_config "OMP_NUM_THREADS=$share; expected a number of threads" "--threads N sets it."
  if [ -n "$hosts" ]; then
    # A host that cannot be reached any more is noticed within half a minute, on both sides.
    options+=(--hostfile "$hosts" --mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5
      --mca oob_tcp_keepalive_probes 3)
    slots=$(slots_of_hosts)
  elif [ -n "${SLURM_JOB_ID:-}" ]; then
    slots= # mpirun asks Slurm
  else
    # nproc counts what this process may use, unless OpenMP's variables tell it otherwise.
    local usable
    usable=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
    slots=$(physical_cores)
    ((slots > 0 && slots < usable)) || slots=$usable
    # Each rank takes its share itself, also of a CPU quota, unless threads are given.
    [ -n "${threads:-${OMP_NUM_THREADS:-}}" ] || share=$((usable > ranks ? usable / ranks : 1))
    ((ranks * ${share%%,*} <= usable)) || crowded=yes
    [ "$bind" = none ] || ((ranks * ${share%%,*} <= slots)) || report $bad_config \
      "--bind core: $ranks ranks of $share threads need more than the $slots cores there are" \
      "Valid: fewer ranks or --threads, or --bind none"
  fi
  [ -z "$slots" ] || ((ranks <= slots)) || { options+=(--oversubscribe) && crowded=yes; }
  [ -z "$threads" ] || export OMP_NUM_THREADS=$threads
  [ $crowded = no ] || options+=(--mca mpi_yield_when_idle 1)
  options+=(--bind-to "$bind")
  [ "$bind" = none ] || ((${share%%,*} <= 1)) || options+=(--map-by "slot:PE=${share%%,*}")

  export TRIAX_ONE_REPORT=1 # every rank may speak at once: the first is shown
  local name
  while read -r name; do options+=(-x "$name"); done < <(exports)
}

# The names of all variables that every host gets. Which GPUs a host shows its ranks is its own affair
# if Slurm chose them, or if they go by names that no other host knows.
exports() {
  local own='^$'
  [[ -z $hosts && -n ${SLURM_JOB_ID:-} || ${CUDA_VISIBLE_DEVICES:-} =~ [GM] ]] && own='^CUDA_VISIBLE_DEVICES$'
  { compgen -e | grep -E "$exported" | grep -v "$own"; printf '%s\n' "${extra[@]}"; } | sed '/^$/d' | sort -u
}

# free_room DIR: in KiB; nothing if nobody knows.
free_room() { df -Pk "$1" 2>/dev/null | awk 'END { if ($4 ~ /^[0-9]+$/) print $4 }' || true; }

# Sets `files`, a directory for this job alone, in memory if it can be, after removing those of jobs
# that were killed: mpirun and this script hold a lock on theirs, which ends with them.
make_files() {
  local room=/dev/shm old other=${TMPDIR:-/tmp} need=$least_room free left
  for old in "$room"/triax-launch.* "$other"/triax-launch.*; do
    [ -L "$old" ] || [ ! -d "$old" ] || [ ! -O "$old" ] || flock -n "$old" rm -rf "$old" || true # in use
  done
  # On one host Open MPI takes up to 4 MiB of it for each rank.
  [ -n "$hosts${SLURM_JOB_ID:-}" ] || ((need += 4096 * ranks))
  free=$(free_room $room) left=$(free_room "$other")
  if [ ! -w $room ] || ((${free:-0} < need)); then
    room=$other
    ((${left:-$least_room} >= least_room)) || report $bad_config \
      "too little room for the files of Open MPI: $left KiB in $other, ${free:-0} KiB in /dev/shm" \
      "It needs $((least_room / 1024)) MiB, and up to 4 MiB more for each rank: TMPDIR=DIR names a directory that has them." \
      "A container gets a larger /dev/shm by --ipc=host or --shm-size=1g."
  fi
  while [ ! -d "$files" ]; do # once more if another start has just removed it
    [ $lock = none ] || exec {lock}<&-
    files=$(mktemp -d "$room/triax-launch.XXXXXXXXXX") || # mode 0700
      report $no_write "no directory can be made in $room"
    if { exec {lock}<"$files"; } 2>/dev/null; then flock "$lock"; fi
  done
}

# What a rank runs before it becomes the program: it notes its process, or on another host says that it has begun.
here=$(uname -n)
readonly here begun="launch.sh: a rank has begun"
# shellcheck disable=SC2016
{
  missing='{ echo "triax: error 66: launch: no such program on $(uname -n): $2" >&2; exit 66; }'
  note='{ echo "$$ $(uname -n)" >>"$0/ranks"; } 2>/dev/null || echo "$1" >&2'
  readonly become='command -v "$2" >/dev/null || '$missing'; '$note'; shift; exec "$@"'
}

# What the ranks and mpirun write on stderr, but for reports: those wait for the end, and the first
# one is it, unless it only is about a rank that was lost.
pass_on_stderr() {
  trap '' INT TERM HUP QUIT USR1 USR2
  local line part='' kept=0 lines=0 over_since=-1 said=no status
  while :; do
    status=0
    IFS= read -r -t 1 line || status=$?
    line=$part$line part=''
    if ((status > 128)); then # nothing new for a second
      part=$line
      ask_again
      end_if_over_long_ago
      continue
    fi
    pass_on_line "$line" $status
    ((status == 0)) || break
  done
  [ $said = no ] || : >"$files/said"
  kill -0 $$ 2>/dev/null || rm -rf "$files"
}

# pass_on_line LINE STATUS: status 1 is the end, perhaps behind a line without end.
pass_on_line() {
  local line=$1
  if [[ $line == *"mpirun: Forwarding signal "* ]]; then # in the middle of a line
    printf '%s' "${line%mpirun: Forwarding signal *}" >&2
  elif [[ $line == *"$begun"* ]]; then
    printf '%s' "${line%"$begun"*}" >&2
    echo elsewhere >>"$files/ranks"
  elif [[ $line =~ ^\[warn\]\ Epoll\ (ADD|MOD|DEL)\([0-9]+\)\ on\ fd\ [0-9]+\ failed ]]; then
    : # libevent inside Open MPI, about pipes that close while a job ends
  elif [[ $line =~ ^triax:\ error\ ([0-9]+): ]]; then
    lines=1
    if ((kept == 0 || (kept == peer_lost && BASH_REMATCH[1] != peer_lost))); then
      kept=${BASH_REMATCH[1]}
      printf '%s\n' "$line" >"$files/report"
    else
      lines=12 # swallow it
    fi
  elif ((lines > 0)) && [[ $line == "  "* ]]; then
    ((++lines > 12 - (restarts > 0))) || printf '%s\n' "$line" >>"$files/report"
  else
    lines=0
    [ -z "$line" ] && [ "$2" != 0 ] && return
    said=yes
    [[ ! $line =~ "An error occurred in MPI_Init"|" cannot be selected" ]] || : >"$files/no_init"
    printf '%s\n' "$line" >&2
  fi
}

# Is a rank at work? Of one on another host it is known only that it has begun.
at_work() {
  local rank host stat
  while read -r rank host; do
    [ "$host" = "$here" ] || return 0
    read -r stat <"/proc/$rank/stat" && [[ ${stat##*) } != [ZX]* ]] && return 0
  done <"$files/ranks"
  return 1
} 2>/dev/null

# mpirun forwards a signal to the ranks that there are: those that have begun since are asked as well.
ask_again() {
  local asked now
  read -r asked <"$files/asked" && now=$(wc -l <"$files/ranks") && ((now > asked)) || return 0
  echo "$now" >"$files/asked"
  kill -USR1 "$job"
} 2>/dev/null

# mpirun may fail to end a job that is over. It has five seconds if it knows that the job has failed, and
# ten after a request to stop if no rank has begun to work or all have ended. A rank that still saves has all its time.
end_if_over_long_ago() {
  local failed='Primary job|process rank|MPI_ABORT|Remote daemon' limit=5
  if [ -e "$files/asked" ] && ! at_work; then
    limit=10
  elif [ ! -s "$files/report" ] && [[ ! $(<"$files/notes") =~ $failed ]]; then
    over_since=-1
    return
  fi
  ((over_since >= 0)) || over_since=$SECONDS
  ((SECONDS - over_since >= limit)) || return 0
  [ $limit = 5 ] || : >"$files/hung"
  kill -KILL "$job" 2>/dev/null || true
}

# mpirun is told to write what it has to say itself to a file: all of it is long, some of it is
# needed below. It leads a session of its own, in which Ctrl-C does not reach it. If it, or this
# script, is killed, setpriv sees to it that the ranks end as well.
start() {
  local both reader writer places=() # of what Open MPI keeps in files, which it leaves behind when it is killed
  make_files
  mkfifo "$files/stderr"
  : >"$files/notes"
  : >"$files/ranks"
  [ -n "$hosts${SLURM_JOB_ID:-}" ] ||
    places=(--mca orte_tmpdir_base "$files" --mca btl_vader_backing_directory "$files")
  # shellcheck disable=SC2094
  # Open before there are processes: a signal may end one before it opens anything, and the other waits.
  exec {both}<>"$files/stderr" {reader}<"$files/stderr" {writer}>"$files/stderr" {both}>&-
  OPAL_OUTPUT_STDERR_FD=9 env "${values[@]}" setsid setpriv --pdeathsig TERM mpirun "${options[@]}" "${places[@]}" \
    -x OPAL_OUTPUT_STDERR_FD=2 setpriv --pdeathsig KILL sh -c "$become" "$files" "$begun" "${command[@]}" "${mesh[@]}" \
    <&0 2>&"$writer" 9>"$files/notes" {reader}<&- {writer}>&- &
  job=$!
  pass_on_stderr <&"$reader" {reader}<&- {writer}>&- &
  filter=$!
  exec {reader}<&- {writer}>&-
}

# All of the job's session that lives.
processes() {
  local stat line fields
  for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue # it has just ended
    read -ra fields <<<"${line##*) }"             # state, parent, group, session
    [[ ${fields[0]} == Z || ${fields[3]} != "$job" ]] || echo "$((${line%% *}))"
  done
} 2>/dev/null

end_all() {
  local left i
  for ((i = 0; i < 100; ++i)); do
    left=$(processes)
    [ -n "$left" ] || break
    # shellcheck disable=SC2086 # a list
    kill -KILL $left 2>/dev/null || true
    sleep 0.05
  done
}

# Asks all ranks to stop.
ask() {
  kill -USR1 "$job" || true
  [ ! -d "$files" ] || wc -l <"$files/ranks" >"$files/asked" || true
} 2>/dev/null

# on_signal NUMBER: the first one asks, the second one does not.
# shellcheck disable=SC2317 # traps call it
on_signal() {
  interrupted=yes stop=$1
  if [ "$asked" = 0 ]; then
    asked=$1
    ask
  else
    end_all
    report $((128 + $1)) "ended at once, by a second signal" \
      "A training goes on from its newest checkpoint with --resume auto."
  fi
}

# Sets `status`, what mpirun ended with.
wait_for_job() {
  local now
  status=127
  while :; do
    interrupted=no now=0
    wait "$job" || now=$?
    ((now == 127)) || status=$now # 127: waited for already
    [ $interrupted = yes ] || break
  done
  end_all
  for ((now = 0; now < 40; ++now)); do
    kill -0 "$filter" 2>/dev/null || break
    sleep 0.05
  done
}

# after_signal NUMBER WHO: what may have been the reason.
after_signal() {
  local why
  [ $remesh = no ] || [ "$1" != 10 ] || exit $((128 + 10)) # it did not listen yet, and starts again
  if [ "$asked" != 0 ] && [ "$1" = 10 ]; then
    report $((128 + asked)) "stopped by signal $asked, with nothing saved" \
      "$2 did not listen to SIGUSR1: it had not begun to work, or it is no program that stops."
  fi
  case $1 in
    9) why="Killed by somebody, or by the system for want of memory: dmesg tells." ;;
    4 | 6 | 8 | 11) why="It crashed. Its stack may stand above." ;;
    7) why="It crashed, or there is no more room for shared memory: df -h /dev/shm ${TMPDIR:-/tmp}" ;;
    24 | 25) why="A limit of the shell was reached: ulimit -a shows them." ;;
    *) why="Somebody sent it." ;;
  esac
  report $((128 + $1)) "$2 was ended by signal $1 ($(kill -l "$1"))" "$why" \
    "All other ranks were ended. A training goes on from its newest checkpoint with --resume auto."
}

# What mpirun says of the reason, without what only its developers understand, and what may be the cure.
could_not_start() {
  local noise='^[- ]*$|ORTE_ERROR_LOG|FORCE-TERMINATE|internal error has occurred|reported to the developers'
  noise+='|help message|orte_base_help_aggregate|\*\*\*  |\*\*\* (reported by|on a NULL|Unknown|MPI_ERRORS)'
  noise+='|^Primary job|^a non-zero exit code|^mpirun detected|^the job to be terminated|^  (Process name|Exit code):'
  local said place free set cures=()
  mapfile -t said < <(grep -Ev "$noise" "$files/notes" | awk '!known[$0]++' | head -n 8)
  [[ $notes != *plm_rsh_agent* ]] || cures+=("Install ssh; ranks of one host do without: OMPI_MCA_plm=isolated")
  printenv PATH >/dev/null || cures+=("PATH is not set: mpirun finds no program, such as ssh, without it.")
  set=$(env | grep -E '^((OMPI|PMIX)_MCA_|OPAL_PREFIX=)' | sort | tr '\n' ' ')
  [ -z "$set" ] || cures+=("Set in the environment: ${set% }")
  for place in /dev/shm "${TMPDIR:-/tmp}"; do
    free=$(free_room "$place")
    ((${free:-$least_room} >= least_room)) || cures+=("$place has only $free KiB free; Open MPI needs $((least_room / 1024)) MiB and up to 4 MiB for each rank.")
  done
  [ ${#said[@]} -gt 0 ] || report $bad_config "mpirun could not start the job" "What it says stands above." "${cures[@]}"
  report $bad_config "mpirun could not start the job; it says:" "${said[@]:0:$((10 - ${#cures[@]}))}" "${cures[@]}"
}

# Has no rank begun, or could none begin to use MPI? Of ranks mpirun tells only if the job failed because of one.
never_began() {
  [[ ! -e $files/no_init && ! $notes =~ (MPI_INIT\ failed|error\ occurred\ in\ MPI_Init) ]] || return 0
  [ ! -s "$files/ranks" ] && [[ ! $notes =~ (Primary\ job|Exit\ code:|MPI_ABORT) ]] &&
    { [ -n "$notes" ] || [ -e "$files/said" ]; }
}

# Says what has to be said, and ends with the code of the program.
verdict() {
  local notes code=''
  notes=$(tr -s '\n' ' ' <"$files/notes")
  local rank='process rank ([0-9]+) with PID [0-9]+ on node ([^ ]+)'
  if [ "$status" = 0 ]; then # whatever else mpirun has to say; but MPI_Abort with a multiple of 256 reads as 0
    [ ! -s "$files/report" ] || cat "$files/report" >&2
    [[ $notes == *"MPI_ABORT was invoked"* ]] || exit 0
    report $internal "a rank called MPI_Abort with a code that reads as success"
  elif [ -s "$files/report" ]; then
    read -r _ _ code _ <"$files/report"
    cat "$files/report" >&2
    exit "${code%:}"
  elif [ -e "$files/hung" ]; then
    [ $remesh = no ] || exit $((128 + 10))
    report $((128 + stop)) "stopped by signal $stop: no rank was at work, and mpirun did not end" \
      "A training goes on from its newest checkpoint with --resume auto."
  elif [[ $notes =~ $rank\ exited\ on\ signal\ ([0-9]+) ]]; then
    after_signal "${BASH_REMATCH[3]}" "rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]}"
  elif [[ $notes =~ $rank\ exiting\ improperly ]]; then
    report $peer_lost "rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]} left in the middle, as if it had finished" \
      "All other ranks were ended. Something in the program calls exit(0)."
  elif [[ $notes =~ Remote\ daemon:.*\ on\ node\ ([^ ]+) ]]; then
    report $peer_lost "host ${BASH_REMATCH[1]} was lost: mpirun has no connection to it any more" \
      "All ranks were ended. A training goes on from its newest checkpoint with --resume auto."
  elif [[ $notes == *"not enough slots"* ]]; then
    report $bad_config "the hosts take fewer than $ranks ranks" \
      "Write how many each one takes behind its name: slots=RANKS"
  elif [[ $notes == *"unable to reliably start"* ]]; then
    [ $elastic = no ] || code=$peer_lost # a host that answered a moment ago
    report "${code:-$bad_config}" "mpirun could not start its daemon on every host" \
      "What ssh says stands above. Each host must answer without a password: ssh HOST orted --version"
  elif [ -z "$notes" ] && ((status > 128 && status < 160)); then
    after_signal $((status - 128)) mpirun
  elif [ -z "$notes" ] && [ "$status" = 1 ] && [ "$asked" != 0 ]; then # scancel signals all processes
    report $((128 + asked)) "stopped by signal $asked, which mpirun got as well: it gives the ranks one second" \
      "A training goes on from its newest checkpoint with --resume auto."
  elif [ "$status" = $stopped ]; then
    exit $stopped
  elif never_began; then
    could_not_start
  elif [ -z "$notes" ] && [ "$status" = 1 ]; then # of a program that ends with 1 it would tell
    report $peer_lost "mpirun gave up without a word: a rank may have left before it met the others"
  elif [[ $notes =~ Exit\ code:\ +([0-9]+) ]]; then # of the first rank that failed
    status=${BASH_REMATCH[1]}
  elif ((status > 128 && status < 160)); then
    after_signal $((status - 128)) "a rank"
  fi
  report "$status" "the job ended with exit code $status and without a report"
}

# Starts the job once; `code` is what the caller gets.
run() {
  code=0
  start
  trap 'on_signal 1' HUP
  trap 'on_signal 2' INT
  trap 'on_signal 15' TERM
  trap 'ask; interrupted=yes stop=10' USR1
  [ $elastic = no ] || trap 'ask; interrupted=yes remesh=yes' USR2
  [ $stop$remesh = 0no ] || ask                          # it came before the restart
  wait_for_job 2>/dev/null                               # the shell's own word on a job that was killed
  (verdict) || code=$?
  rm -rf "$files"
  files='' job=''
}

# As a function it is read as a whole: the file may change while the job runs.
main() {
  ranks='' least=1 hosts='' threads='' bind=none restarts=0 elastic=no command=() options=() extra=() values=()
  parse "$@"
  [ ${#command[@]} = 0 ] || become_a_rank
  [ $elastic = yes ] || { remesh=no && trap - USR2; }
  files='' lock=none job=0 filter=0 asked=0 stop=0 interrupted=no status=0 code=0 mesh=() next=again
  trap '[ $BASHPID != $$ ] || rm -rf "$files"' EXIT # a child that has not become mpirun yet has this trap, too
  check
  if [ $elastic = no ]; then choose_options; else begin_elastic; fi
  run
  while [ "$restarts" != 0 ] && $next; do run; done
  exit $code
}

main "$@"
