"""Generation from a trained model."""

from hymo.inference.engine import Engine, Generation
from hymo.inference.sampling import Sampling

__all__ = ["Engine", "Generation", "Sampling"]
