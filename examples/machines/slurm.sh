#!/usr/bin/env bash
# Train on the nodes of a Slurm cluster:
#   sbatch examples/machines/slurm.sh RECIPE --data DATA --out RUN [key=value ...]
# srun starts one worker for each task, and `dragoman train` finds its place among them by itself.
#SBATCH --job-name=dragoman
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=%x-%j.log
# With GPUs: as many tasks as GPUs a node. All of a node's GPUs have to be visible to each of its tasks, so ask for them
# by node, not by task:
##SBATCH --gpus-per-node=4
##SBATCH --ntasks-per-node=4
# Two minutes before the time is up, the workers are told to save and leave; the job then goes on when its turn comes.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

srun --kill-on-bad-exit=1 dragoman train "$@"
