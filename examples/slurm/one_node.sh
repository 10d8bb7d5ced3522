#!/usr/bin/env bash
# Trains on one node: scripts/launch.sh starts the ranks, and starts them again if one is killed.
#
#   sbatch [OPTIONS OF sbatch] examples/slurm/one_node.sh --out /shared/runs/mine [FLAGS OF train]
#
# Five minutes before the time limit Slurm sends SIGUSR1 to this script (B:), which passes it on. The
# ranks save a checkpoint and end with 75; the job goes back into the queue, and its next start
# continues from there. After the loss of the node Slurm itself puts the job back.
#
#SBATCH --job-name=minigpt
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

program=${PROGRAM:-$(command -v minigpt || echo build/release/bin/minigpt)}
launch=$(command -v triax-launch || echo scripts/launch.sh)
"$launch" -n "$SLURM_NTASKS" --threads "$SLURM_CPUS_PER_TASK" --restarts 3 -- \
  "$program" train --resume auto "$@" &
job=$!
trap 'kill -USR1 $job' USR1
while :; do # SIGUSR1 ends a wait, not the job
  wait "$job"
  code=$?
  [ "$code" = $((128 + 10)) ] || break
  kill -0 "$job" 2>/dev/null || { wait "$job"; code=$?; break; } # it ended meanwhile: its own code
done
[ "$code" != 75 ] || scontrol requeue "$SLURM_JOB_ID"   # ends this script
exit "$code"
