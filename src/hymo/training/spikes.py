"""Loss spikes: telling one from the usual noise, and which batches a run leaves out because of them.

A loss is a spike if it lies `sigmas` standard deviations above the mean of the last `window` losses; spikes themselves
are not counted as usual. With `training.spike_rewind` the run goes back to its newest checkpoint and leaves out the
batch of the spike: every later step takes the batch after the one it would have taken. The rule sees the loss over all
ranks, and its memory is saved in checkpoints, so that an interrupted run decides as one that was not.
"""

from __future__ import annotations

import math
import statistics
from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any


class Spikes:
    """What a run knows of its losses, and the batches that it leaves out.

    Args:
        window: losses that tell what is usual.
        sigmas: standard deviations above their mean that make a spike.
    """

    def __init__(self, window: int, sigmas: float) -> None:
        self._sigmas = sigmas
        self._losses: deque[tuple[int, float]] = deque(maxlen=window)
        self.left_out: list[int] = []
        """Places in the order of batches, ascending."""

    @property
    def limit(self) -> float:
        """Loss above which a step is a spike; infinite until the window is full."""
        losses = [loss for _, loss in self._losses]
        if len(losses) < (self._losses.maxlen or 0):
            return math.inf
        return statistics.fmean(losses) + self._sigmas * statistics.stdev(losses)

    def is_spike(self, step: int, loss: float) -> bool:
        """Whether the loss of a step is a spike; one that is not is remembered. Not finite is another matter."""
        if not math.isfinite(loss):
            return False
        if loss > self.limit:
            return True
        self._losses.append((step, loss))
        return False

    def leave_out(self, batch: int) -> None:
        """Leave out a place in the order of batches from here on."""
        if batch not in self.left_out:
            insort(self.left_out, batch)

    def batch_of(self, step: int) -> int:
        """Place in the order of batches that step `step` (from 0) takes."""
        return batch_of(step, self.left_out)

    def state_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"losses": [list(each) for each in self._losses], "left_out": list(self.left_out)}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Take up what was saved; batches that were left out since stay left out."""
        self._losses.clear()
        for step, loss in (state or {}).get("losses", []):
            self._losses.append((int(step), float(loss)))
        for batch in (state or {}).get("left_out", []):
            self.leave_out(int(batch))


def batch_of(step: int, left_out: Iterable[int]) -> int:
    """The place in the order of batches of step `step`, both from 0, where ascending `left_out` are passed over."""
    for batch in left_out:
        if batch > step:
            break
        step += 1
    return step
