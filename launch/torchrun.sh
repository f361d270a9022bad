#!/usr/bin/env bash
# Train on several ranks of one machine, through failures:
#
#     launch/torchrun.sh RANKS CONFIG|--resume RUN [options of hymo train]
#
# A failed rank ends all; torchrun starts them again and the run goes on from its newest whole checkpoint, RESTARTS
# times (3). If that does not help, a device is taken to be gone: the run goes on with the next smaller number of ranks
# that the configuration divides over, down to one. SIGTERM and Ctrl-C end in a checkpoint and stop the recipe (143, 130).
set -u

if [ $# -lt 2 ] || ! [ "$1" -ge 1 ] 2>/dev/null; then
    echo "usage: $0 RANKS CONFIG|--resume RUN [options of hymo train]" >&2
    exit 2
fi
ranks=$1
shift
python=${PYTHON:-python}
stopped=0
child=
# torchrun gets a process group of its own: a terminal's Ctrl-C reaches it once, from here, and ranks save. One that
# they hear twice ends them at once.
set -m
# Every start meets in a store of its own: a kept one holds what earlier starts wrote about themselves.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

stop() {
    stopped=$1
    [ -z "$child" ] || kill -s "$2" "$child" 2>/dev/null
}
trap 'stop 143 TERM' TERM
trap 'stop 130 INT' INT

# The largest number of ranks up to $1 that the run divides over; also checks the configuration before any work.
fitting() {
    local most=$1
    shift
    "$python" - "$most" "$@" <<'PYTHON'
import sys
from pathlib import Path

from hymo.core.errors import HymoError
from hymo.core.load import CONFIG, load_config

most, words = int(sys.argv[1]), sys.argv[2:]
config = Path(words[1]) / CONFIG if words[0] == "--resume" else words[0]
overrides = [value for word, value in zip(words, words[1:]) if word == "--set"]
overrides += [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
try:
    training = load_config(config, overrides).training
except HymoError as error:
    sys.exit(f"error: {error}")
passes = training.grad_accum_steps * training.dp_size
fits = [n for n in range(1, most + 1) if passes % n == 0 and (n == 1 or n % training.dp_replicate == 0)]
print(max(fits, default=0))
PYTHON
}

first=$(fitting "$ranks" "$@") || exit 2
if [ "$first" != "$ranks" ]; then
    echo "error: $ranks ranks do not divide the passes of a step. Start $first, or change training.grad_accum_steps." >&2
    exit 2
fi

while [ "$ranks" -ge 1 ]; do
    [ "$stopped" -ne 0 ] && exit "$stopped"
    "$python" -m hymo.training.torchrun --standalone --nproc-per-node "$ranks" --max-restarts "${RESTARTS:-3}" \
        -m hymo train "$@" &
    child=$!
    [ "$stopped" -ne 0 ] && kill "$child" 2>/dev/null # it came between the two lines above
    # A signal ends `wait` early; the child has been told and is waited for again.
    wait "$child"
    code=$?
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
        code=$?
    done
    child=
    [ "$stopped" -ne 0 ] && exit "$stopped"
    [ "$code" -eq 0 ] && exit 0
    [ "$ranks" -eq 1 ] && exit "$code"
    ranks=$(fitting $((ranks - 1)) "$@") || exit 2
    echo "torchrun.sh: exit code $code after all restarts; going on with $ranks" >&2
done
