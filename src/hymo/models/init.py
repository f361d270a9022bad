"""Initialisation: every parameter from its own seeded generator.

A tensor's values depend on the seed and its name alone: not on the order of construction, the device, how many ranks
share the model, or what other parts a variant adds. Two variants therefore start from equal weights wherever they share
a parameter.
"""

from __future__ import annotations

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from hymo.core.config import ModelConfig
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.moe import DeepSeekMoE
from hymo.models.rope import RotaryEmbedding

_RESIDUAL_OUTPUTS = ("out_proj.weight", "wo.weight", "w2.weight", "w2")
"""Names of the matrices that write to the residual stream and are scaled by depth; skip_proj is not among them."""


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Fill all parameters and buffers of a materialised model.

    Embedding N(0, init_std^2); router N(0, router_init_std^2); matrices and convolutions uniform in +-1/sqrt(fan in),
    PyTorch's default; residual outputs times 1/sqrt(2 n_layers); norms and scales 1; decays as the block says.
    """
    inference = torch.is_inference_mode_enabled()  # each thread has its own, and its own gradient mode

    def fill(named: tuple[str, Tensor]) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            _fill(*named, config, seed)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # a generator draws on one core
        for _ in pool.map(fill, model.named_parameters()):  # an error or Ctrl-C leaves out those not begun
            pass
    for module in model.modules():
        if isinstance(module, GatedDeltaNetBlock):
            module.reset_decay()
        elif isinstance(module, DeepSeekMoE | RotaryEmbedding):
            module.reset_buffers()


def _fill(name: str, parameter: Tensor, config: ModelConfig, seed: int) -> None:
    if name.endswith(("A_log", "dt_bias")):
        return
    if parameter.ndim < 2:
        parameter.fill_(1.0)
        return
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    values = torch.empty(parameter.shape, dtype=torch.float32)
    if name in ("embed.weight", "head.weight"):
        values.normal_(0, config.init_std, generator=generator)
    elif name.endswith("router"):
        values.normal_(0, config.router_init_std, generator=generator)
    else:
        bound = 1 / math.sqrt(parameter.shape[-1])
        values.uniform_(-bound, bound, generator=generator)
        if name.endswith(_RESIDUAL_OUTPUTS):
            values.mul_(1 / math.sqrt(2 * config.n_layers))
    parameter.copy_(values)
