"""Time of a training step on a device: roofline parts over measured efficiencies.

    step = products / (e_p peak) + attention / (e_a peak) + kept bytes / (e_m bandwidth) + gaps + received / link

Products are 6 N_used a token and attention three times its forward pass (`hymo.core.accounting`); the third part is all
that memory limits, in proportion to the bytes that autograd keeps; gaps are per pass and block. The efficiencies are
fitted on our own benchmark rows (`hymo.core.measured`). Recomputation repeats forward work. What ranks receive from
each other is added at the link's nominal rate, as if nothing hid it; that part is not measured yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from hymo.core.accounting import attention_flops, dense_ffn_width, used_per_token
from hymo.core.config import HyMoConfig
from hymo.core.hardware import Device
from hymo.core.measured import MEASURED, Measured
from hymo.core.memory import Level, activation_bytes


@dataclass(frozen=True)
class StepWork:
    """What one device does in an optimizer step."""

    matmul_flops: float
    attention_flops: float
    kept_bytes: float
    """Activations that autograd keeps over all passes: GDN mixers as the compiler leaves them, all else as written."""
    gaps: int
    """Passes times blocks."""
    received_bytes: float
    """What it receives from other ranks."""


def step_work(config: HyMoConfig, gpus: int, micro_batch: int, level: Level, received: float = 0) -> StepWork:
    """Count the work of a step on one of `gpus` devices.

    Args:
        config: the run.
        gpus: devices that share the step's sequences.
        micro_batch: sequences per forward pass.
        level: activation checkpointing: recomputed blocks (or feed-forward parts of MLA blocks) do their forward pass
            twice.
        received: bytes from other ranks.
    """
    model, training = config.model, config.training
    tokens = training.tokens_per_step / gpus
    products, attention = 6.0 * used_per_token(model, training=True), 3.0 * attention_flops(model, training.seq_len)
    again = 1.0
    if level == "full":
        again = 4 / 3
    elif level == "selective":
        passes = (model.n_activated_experts + model.n_shared_experts) * sum(map(model.has_moe, model.mla_layers))
        widths = passes * model.moe_inter_dim + sum(dense_ffn_width(model, layer) for layer in model.mla_layers)
        products += 2.0 * 3 * model.dim * widths
    return StepWork(
        matmul_flops=tokens * products * again,
        attention_flops=tokens * attention * again,
        kept_bytes=activation_bytes(config, "none", on_gpu=True, kept=1.0) * tokens * again,
        gaps=-(-training.sequences_per_step // (micro_batch * gpus)) * model.n_layers,
        received_bytes=received,
    )


def step_seconds(work: StepWork, device: Device, measured: Measured = MEASURED) -> float:
    """Expected time of a step.

    Raises:
        ValueError: a device without a peak and a bandwidth.
    """
    if device.peak is None or device.bandwidth is None or device.link is None:
        raise ValueError(f"{device.key} has no rates")
    return (
        work.matmul_flops / (measured.matmul * device.peak)
        + work.attention_flops / (measured.attention * device.peak)
        + work.kept_bytes / (measured.memory * device.bandwidth)
        + work.gaps * measured.gap_seconds
        + work.received_bytes / device.link
    )
