#!/usr/bin/env bash
#SBATCH --job-name=hymo_750m
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=hymo_750m-%j.log
#SBATCH --signal=B:TERM@360
# hymo_750m on one machine with 8 GPUs. A checkpoint is saved before the time is up or the job preempted; then it is queued again.
set -u
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export HEAD
body=$(cat <<'EVERY_MACHINE'
set -u
# Each start meets in a store of its own.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun gets a process group of its own: its ranks must hear a signal once, from it.
set -m
stopped=0
child=
code=0
trap 'stopped=143; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
run() {
    [ "$stopped" -eq 0 ] || exit "$stopped"
    "$@" &
    child=$!
    [ "$stopped" -eq 0 ] || kill -TERM "$child" 2>/dev/null # it came between the two lines above
    wait "$child"
    code=$?
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
        code=$?
    done
    child=
    [ "$stopped" -eq 0 ] || exit "$stopped"
}
if [ ! -d runs/hymo_750m/checkpoints ]; then
    run python3 -m hymo.training.torchrun --nnodes 1 --nproc-per-node 8 --max-restarts 3 --rdzv-backend c10d --rdzv-id hymo_750m --rdzv-endpoint "$HEAD:29501" -m hymo doctor --preflight hymo_750m --set run.output_dir=runs --set run.data=data --set training.hang_abort=true
    [ "$code" -eq 0 ] || exit "$code"
fi
run python3 -m hymo.training.torchrun --nnodes 1 --nproc-per-node 8 --max-restarts 3 --rdzv-backend c10d --rdzv-id hymo_750m --rdzv-endpoint "$HEAD:29500" -m hymo train hymo_750m --set run.output_dir=runs --set run.data=data --set training.hang_abort=true
exit "$code"
EVERY_MACHINE
)
stopped=0
trap 'stopped=1; scancel --signal=TERM "$SLURM_JOB_ID"' TERM
srun --kill-on-bad-exit=1 --cpus-per-task=64 bash -c "$body" &
child=$!
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
done
if [ "$stopped" -eq 1 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
