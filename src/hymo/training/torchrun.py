"""`torchrun`, but ranks that it tells to stop have time to save: `python -m hymo.training.torchrun [its options]`.

Told to stop, torchrun passes the signal on and kills what is still there 30 s later. A large checkpoint takes longer.
Versions of PyTorch that have an option for it read it from the environment too; older ones have none, so that the limit
is lifted where every version passes it on.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.run import main

GRACE_SECONDS = 300
"""Least time between a signal that is passed on and the end of who did not follow it."""


def be_patient(seconds: int = GRACE_SECONDS) -> None:
    """Give the processes of every launcher in this process at least so long to end by themselves."""
    close = PContext.close

    def patient(context: PContext, death_sig: Any = None, timeout: int = seconds) -> None:
        close(context, death_sig, max(timeout, seconds))

    PContext.close = patient  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    be_patient()
    main()
