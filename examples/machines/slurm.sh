#!/usr/bin/env bash
# Train on the nodes of a Slurm cluster:
#   sbatch examples/machines/slurm.sh RECIPE --data DATA --out RUN [key=value ...]
# srun starts one worker for each task, and `dragoman train` reads its rank from the environment.
#SBATCH --job-name=dragoman
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=%x-%j.log
# With GPUs: as many tasks per node as GPUs. Each task must see all GPUs of its node, so request them per node, not per
# task:
##SBATCH --gpus-per-node=4
##SBATCH --ntasks-per-node=4
# Two minutes before the time limit the workers get a signal, save and exit; the requeued job resumes the run.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

srun --kill-on-bad-exit=1 dragoman train "$@"
