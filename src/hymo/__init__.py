"""HyMo: hybrid language models from raw text to a trained, evaluated, generating model.

The names below are imported when first used, so that `import hymo` and the command line's help load no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hymo.core.version import VERSION

if TYPE_CHECKING:
    from hymo.core.load import derive_config, load_config
    from hymo.inference import Engine
    from hymo.models import HyMo, build_hymo
    from hymo.training import Trainer

__version__ = VERSION
__all__ = ["Engine", "HyMo", "Trainer", "__version__", "build_hymo", "derive_config", "load_config"]

_HOMES = {
    "load_config": "hymo.core.load",
    "derive_config": "hymo.core.load",
    "build_hymo": "hymo.models",
    "HyMo": "hymo.models",
    "Trainer": "hymo.training",
    "Engine": "hymo.inference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hymo' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
