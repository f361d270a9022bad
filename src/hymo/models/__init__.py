"""The model: blocks that read like their papers, and the state they decode with."""

from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.layers import SwiGLUExpert
from hymo.models.mla import MLABlock, MultiHeadLatentAttention
from hymo.models.model import HyMo, build_hymo
from hymo.models.moe import DeepSeekMoE
from hymo.models.mtp import MTPBlock, MultiTokenPrediction
from hymo.models.rope import RotaryEmbedding, apply_rope
from hymo.models.state import DecodeState
from hymo.models.windows import Window, split_window

__all__ = [
    "DecodeState",
    "DeepSeekMoE",
    "GatedDeltaNetBlock",
    "HyMo",
    "MLABlock",
    "MTPBlock",
    "MultiHeadLatentAttention",
    "MultiTokenPrediction",
    "RotaryEmbedding",
    "SwiGLUExpert",
    "Window",
    "apply_rope",
    "build_hymo",
    "split_window",
]
