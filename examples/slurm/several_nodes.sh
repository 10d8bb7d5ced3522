#!/usr/bin/env bash
# Trains on one or several nodes: srun starts the ranks and connects them through PMIx.
#
#   sbatch [OPTIONS OF sbatch] examples/slurm/several_nodes.sh --out /shared/runs/mine [FLAGS OF train]
#
# Five minutes before the time limit Slurm sends SIGUSR1 to every rank. They save a checkpoint and end
# with 75; the job goes back into the queue, and its next start continues from there. After the loss of
# a node Slurm itself puts the job back.
#
#SBATCH --job-name=minigpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

program=${PROGRAM:-$(command -v minigpt || echo build/release/bin/minigpt)}
srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 "$program" train --resume auto "$@"
code=$?
[ $code != 75 ] || scontrol requeue "$SLURM_JOB_ID" # ends this script
exit $code
