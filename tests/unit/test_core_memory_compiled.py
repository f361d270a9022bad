"""What a compiled GDN block on a GPU keeps for its backward pass: the estimate against the compiler's own graphs.

Nothing is computed: shapes are enough, and 65,536 tokens of 128 documents are as many as a GPU gets. The Triton form is
chosen where no GPU is, so kernels must be interpreted; that must be said before Triton is imported. Under plain pytest
this file holds one test, which runs the file again with TRITON_INTERPRET=1; there it holds the tests proper.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.core.memory import _gdn
from hymo.models.context import SequenceContext
from hymo.models.gdn import GatedDeltaNetBlock
from kernel_helpers import INTERPRETED, run_interpreted

TOKENS, DOCUMENTS = 65_536, 128

if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)


def prepared(config: HyMoConfig) -> tuple[GatedDeltaNetBlock, Tensor, SequenceContext]:
    """A block in bf16, its input, and a context of packed documents."""
    model = config.model
    block = GatedDeltaNetBlock(model, model.gdn_layers[0]).to(torch.bfloat16)
    x = torch.empty(1, TOKENS, model.dim, dtype=torch.bfloat16, requires_grad=True)
    half = (model.gdn_headdim if model.gdn_rope_target == "v" else model.gdn_d_state) // 2
    turn = torch.empty(1, TOKENS, 1, half), torch.empty(1, TOKENS, 1, half)
    bounds = torch.arange(DOCUMENTS + 1, dtype=torch.int32) * (TOKENS // DOCUMENTS)
    return block, x, SequenceContext(turn, turn, bounds, kernel="triton")


class _SeenError(Exception):
    """The forward graph is known: nothing needs to run."""


def kept_by_the_compiler(config: HyMoConfig) -> float:
    """Bytes per token that the partitioner hands from the forward graph to the backward one.

    Without parameters, without the rotation that all blocks share, and without what grows with the number of segments
    and not with that of tokens: their outer states, and the tiles that cuts add.
    """
    block, x, context = prepared(config)
    assert context.cu_seqlens is not None
    fixed = {p.shape for p in block.parameters()} | {context.cu_seqlens.shape}
    turn = context.rope_gdn[0].shape
    found: list[Tensor] = []

    def forward_graph(graph: torch.fx.GraphModule, _: Any) -> Any:
        (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
        values = ((node, node.meta["val"]) for node in outputs[1:])
        tensors = [(node, value) for node, value in values if isinstance(value, Tensor)]
        found.extend(value for node, value in tensors if node.op != "placeholder" or value.shape not in fixed)
        raise _SeenError

    backend = aot_autograd(
        fw_compiler=forward_graph,
        bw_compiler=forward_graph,
        partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
    )
    torch.compiler.reset()
    with pytest.raises(Exception, match="_SeenError"):
        torch.compile(block.attend, fullgraph=True, backend=backend)(x, context)
    tiles = TOKENS // 16
    segments = max(len(value) for value in found if value.ndim == 4 and value.shape[2:] == (16, 16)) - tiles
    total = 0
    for value in found:
        count = value.numel()
        if value.dtype is torch.float32 and (value.shape[-1], count) == (turn[-1], turn.numel()):
            continue
        if value.shape[:2] == (segments, config.model.gdn_n_heads):
            continue
        if value.shape[:2] == (segments + tiles, config.model.gdn_n_heads):
            count = count // len(value) * tiles
        total += count * value.element_size()
    return total / TOKENS


VARIANTS: dict[str, dict[str, Any]] = {
    "linear": {},
    "norm": {"gdn_output_norm": True},
    "delta": {"gdn_recurrence": "gated_delta"},
    "delta, wide keys": {"gdn_recurrence": "gated_delta", "gdn_d_state": 64},
    "gates": {"gdn_gate": "full"},
    "no gate": {"gdn_gate": "none"},
    "values turn": {"gdn_rope_target": "v"},
}

if INTERPRETED:

    @pytest.fixture(autouse=True)
    def kernels_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HYMO_KERNELS", "triton")

    @pytest.mark.parametrize("preset", ["hymo_750m", "hymo_small"])
    @pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
    def test_the_estimate_is_what_the_backward_graph_is_handed(preset: str, changes: dict[str, Any]) -> None:
        config = derive_config(load_config(preset), model=changes)
        assert _gdn(config.model, 2, "triton", True) == pytest.approx(kept_by_the_compiler(config), rel=1e-3)
