#!/bin/bash
# A sweep in 32 parts on a Slurm cluster: sbatch slurm.sh, then join the tables:
#   fulcrum merge parts/*.csv -o sweep.csv
#SBATCH --job-name=fulcrum-sweep
#SBATCH --array=0-31
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail
mkdir -p parts
# A part that was stopped goes on where it was.
exec fulcrum sweep scenario.yaml --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --resume \
  -o "parts/$SLURM_ARRAY_TASK_ID.csv"
