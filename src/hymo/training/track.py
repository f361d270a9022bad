"""Sinks beside the run's own files: TensorBoard, Trackio and Weights & Biases, each behind the callback protocol.

They are optional (`pip install 'hymo[track]'`) and imported when a run asks for one. What they are given is what
metrics.jsonl holds, by the same names; a sink that fails while the run goes on is told of once and left alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import derive_config, dump_config
from hymo.core.yaml12 import parse

_MODULES = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
"""What `run.track` names, and the module that it needs."""


def require_trackers(names: Iterable[str]) -> None:
    """Refuse a sink whose package is not here.

    Raises:
        UsageError: naming it and the extra.
    """
    for name in names:
        if importlib.util.find_spec(_MODULES[name]) is None:
            raise UsageError(f"run.track: {name} is not installed. Install it with `pip install 'hymo[track]'`.")


class _Tracker(ABC):
    """One service. `_log` and `_close` are called with what is finite; the first failure ends its part in the run."""

    def __init__(self, name: str) -> None:
        self._name, self._failed = name, False

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Pass on the numbers of one step."""
        values = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k != "step"}
        self._try(lambda: self._log(int(record["step"]), {k: v for k, v in values.items() if math.isfinite(v)}))

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Nothing: events stay in the run's own files."""
        del kind, fields

    def close(self) -> None:
        """Send what is left."""
        self._try(self._close)

    @abstractmethod
    def _log(self, step: int, values: Mapping[str, float]) -> None:
        """Send the numbers of one step."""

    @abstractmethod
    def _close(self) -> None:
        """Send what is left and let go."""

    def _try(self, work: Any) -> None:
        if self._failed:
            return
        try:
            work()
        except Exception as error:  # somebody's service must not end a run of days
            self._failed = True
            print(f"{self._name}: {type(error).__name__}: {error}; training goes on without it", file=sys.stderr)


class _TensorBoard(_Tracker):
    def __init__(self, folder: Path) -> None:
        super().__init__("tensorboard")
        self._writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tensorboard"))

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def _close(self) -> None:
        self._writer.close()


class _Service(_Tracker):
    """Trackio and W&B, whose clients have the same calls."""

    def __init__(self, name: str, config: HyMoConfig) -> None:
        super().__init__(name)
        self._module = importlib.import_module(_MODULES[name])
        # An alert's address may be a secret, and these settings leave the machine.
        settings, _ = parse(dump_config(derive_config(config, run={"alert": None})), "config")
        # The same run under the same name when it is resumed.
        options: dict[str, Any] = {"project": "hymo", "name": config.run.name, "config": settings, "resume": "allow"}
        if name == "wandb":
            options["id"] = config.run.name
        self._module.init(**options)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self._module.log(dict(values), step=step)

    def _close(self) -> None:
        self._module.finish()


def trackers(config: HyMoConfig, folder: Path) -> list[_Tracker]:
    """The sinks that a run asks for, ready to be told.

    Raises:
        UsageError: one is not installed, or cannot be opened.
    """
    require_trackers(config.run.track)
    made: list[_Tracker] = []
    for name in config.run.track:
        try:
            made.append(_TensorBoard(folder) if name == "tensorboard" else _Service(name, config))
        except Exception as error:
            for each in made:
                each.close()
            raise UsageError(
                f"run.track: {name} cannot be opened ({type(error).__name__}: {error}). Set it up, or leave it out."
            ) from error
    return made
