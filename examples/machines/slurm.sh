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
# Two minutes before the time limit the workers get a signal, save and exit with 75. The job is then put into the queue
# again, and resumes the run. Slurm does the same itself with a job that is preempted or loses a node.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

# Workers that lose another one exit by themselves. Slurm must not kill those that are still saving.
code=0
srun --kill-on-bad-exit=0 dragoman train "$@" || code=$?
if [ "$code" = 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
