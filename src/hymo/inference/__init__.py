"""Generation from a trained model."""

from hymo.inference.engine import Engine, Stream
from hymo.inference.request import Chunk, Generation, Request, Scored, Token
from hymo.inference.sampling import Sampling
from hymo.inference.scheduler import Scheduler

__all__ = ["Chunk", "Engine", "Generation", "Request", "Sampling", "Scheduler", "Scored", "Stream", "Token"]
