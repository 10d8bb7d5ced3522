#!/usr/bin/env bash
# Trains on the GPUs of one or several nodes, a rank each: srun starts the ranks and connects them
# through PMIx.
#
#   sbatch [OPTIONS OF sbatch] examples/slurm/several_nodes_gpus.sh --out /shared/runs/mine [FLAGS OF train]
#
# Five minutes before the time limit Slurm sends SIGUSR1 to every rank. They save a checkpoint and end
# with 75; the job goes back into the queue, and its next start continues from there. After the loss of
# a node Slurm itself puts the job back.
#
# Other nodes: as many tasks as GPUs, and their share of the cores. NCCL's variables (NCCL_SOCKET_IFNAME,
# NCCL_IB_HCA, NCCL_DEBUG=INFO ...) are set before sbatch and reach every rank.
#
#SBATCH --job-name=minigpt
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --gpu-bind=none
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

ulimit -l unlimited 2>/dev/null ||
  echo "memory locks are limited to $(ulimit -l) KiB: InfiniBand may need more (LimitMEMLOCK of slurmd)" >&2
program=${PROGRAM:-$(command -v minigpt || echo build/release/bin/minigpt)}
srun --mpi=pmix --export=ALL --cpus-per-task="$SLURM_CPUS_PER_TASK" --gpu-bind=none --kill-on-bad-exit=1 \
  "$program" train --device cuda --comm nccl --resume auto "$@"
code=$?
[ $code != 75 ] || scontrol requeue "$SLURM_JOB_ID" # ends this script
exit $code
