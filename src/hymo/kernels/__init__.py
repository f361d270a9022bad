"""The operations that HyMo is made of, each with a reference and faster implementations of one signature."""

from hymo.kernels.attention import document_attention
from hymo.kernels.cross_entropy import linear_cross_entropy
from hymo.kernels.gated_delta import gated_delta
from hymo.kernels.gated_linear import gated_linear
from hymo.kernels.grouped_linear import grouped_linear
from hymo.kernels.output_gate import output_gate
from hymo.kernels.short_conv import short_conv

__all__ = [
    "document_attention",
    "gated_delta",
    "gated_linear",
    "grouped_linear",
    "linear_cross_entropy",
    "output_gate",
    "short_conv",
]
