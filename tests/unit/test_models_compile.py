"""A compiled model is the model as written. Here without a GPU: attention, experts and prediction heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from decode_oracle import Figures, forced, kept
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.models import HyMo, Window, build_hymo, split_window
from hymo.models.context import SequenceContext

CONFIG = derive_config(
    load_config("hymo_tiny"), model={"mla_layers": [0, 1, 2], "n_layers": 3}, training={"seq_len": 32}
)
MIXED = derive_config(CONFIG, model={"mla_layers": [0], "moe_placement": "all"})
DENSE = derive_config(CONFIG, model={"mla_layers": [0, 2], "moe_placement": "none"})
BOUNDS = torch.tensor([0, 20, 33, 50, 66], dtype=torch.int32)


def gradients(model: HyMo, telemetry: dict[str, Tensor] | None = None, bounds: Tensor | None = BOUNDS) -> list[Tensor]:
    tokens = torch.randint(0, 259, (2, 33), generator=torch.Generator().manual_seed(1))
    sums = model.loss_sums(split_window(tokens, bounds), telemetry=telemetry)
    torch.stack(list(sums.values())).sum().backward()
    return [*(x.detach() for x in sums.values()), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["documents", "rows"])
@pytest.mark.parametrize(("level", "capture"), [("none", False), ("none", True), ("selective", False), ("full", False)])
def test_losses_gradients_and_counts_are_those_of_the_blocks_as_written(
    level: str, capture: bool, bounds: Tensor | None
) -> None:
    plain, compiled = build_hymo(CONFIG).double(), build_hymo(CONFIG).double()
    names = [name for name, _ in compiled.named_parameters()]
    compiled.compile_blocks(capture=capture, backend="aot_eager")
    assert [name for name, _ in compiled.named_parameters()] == names
    for model in (plain, compiled):
        model.train()
        model.checkpointing = level
    for got, want in zip(gradients(compiled, bounds=bounds), gradients(plain, bounds=bounds), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(compiled.mixtures(), plain.mixtures(), strict=True):
        assert ours.tokens_per_expert.sum() == 128
        assert torch.equal(ours.tokens_per_expert, theirs.tokens_per_expert)


def test_the_experts_of_a_compiled_pass_can_be_kept_and_given_to_another_model() -> None:
    """The GPU's comparison rests on it: gradients in bf16 and fp32 differ most by tokens that take other experts."""
    compiled, other = build_hymo(MIXED).double().train(), build_hymo(MIXED).double().train()
    with torch.no_grad():
        for mixture in other.mixtures():
            mixture.bias.copy_(torch.arange(len(mixture.bias)).double())  # would choose the last experts for all
    compiled.compile_blocks(backend="aot_eager")
    first = gradients(compiled)
    compiled.zero_grad()
    with kept(compiled, 64) as choices:
        again = gradients(compiled)
    assert sorted(choices) == [0, 1, 2]
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    figures = Figures()
    with forced(other, choices, figures):
        got = gradients(other)
    assert figures.choices == 3 * 64
    assert figures.others > 150  # left to itself the other model takes the last experts
    for one, two in zip(got, first, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("config", [CONFIG, MIXED, DENSE], ids=["experts", "experts in GDN blocks", "dense"])
def test_units_are_the_blocks_as_written(config: HyMoConfig) -> None:
    plain, compiled = build_hymo(config).double().train(), build_hymo(config).double().train()
    names = [name for name, _ in compiled.named_parameters()]
    compiled.compile_units(backend="aot_eager")
    assert [name for name, _ in compiled.named_parameters()] == names
    for bounds in (None, BOUNDS):
        for got, want in zip(gradients(compiled, bounds=bounds), gradients(plain, bounds=bounds), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize(
    ("kernel", "capacity"), [("auto", None), ("auto", 1.25), ("chunked", None), ("recurrent", None)]
)
def test_where_boundaries_are_read_on_the_host_nothing_is_compiled_for_them(
    kernel: str, capacity: float | None, units: bool
) -> None:
    """No number and no lengths of documents are compiled for: the compiler gives up after eight."""
    config = derive_config(MIXED, model={"capacity_factor": capacity})
    plain, compiled, graphs = build_hymo(config).train(), build_hymo(config).train(), list[torch.fx.GraphModule]()
    plain.kernel = compiled.kernel = kernel

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    (compiled.compile_units if units else compiled.compile_blocks)(backend=backend)
    generator, counts = torch.Generator().manual_seed(2), []
    for i in range(12):
        cuts = torch.randperm(65, generator=generator)[: 3 + i % 4].sort().values + 1
        bounds = torch.cat((torch.tensor([0]), cuts[cuts != 33], torch.tensor([33, 66]))).sort().values.int()
        for got, want in zip(gradients(compiled, bounds=bounds), gradients(plain, bounds=bounds), strict=True):
            torch.testing.assert_close(got, want)
        counts.append(len(graphs))
    assert counts[-1] == counts[3] > 0


@pytest.mark.parametrize(
    ("device", "dtype", "kernel", "attention", "recurrence"),
    [
        ("cuda", torch.bfloat16, "auto", True, True),
        ("cuda", torch.float16, "triton", True, True),
        ("cuda", torch.float32, "auto", False, True),
        ("cuda", torch.bfloat16, "chunked", True, False),
        ("cuda", torch.bfloat16, "recurrent", True, False),
        ("cuda", torch.float64, "auto", False, False),
        ("cpu", torch.float32, "auto", False, False),
    ],
)
def test_what_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch, device: str, dtype: torch.dtype, kernel: str, attention: bool, recurrence: bool
) -> None:
    """The device is only a word here; a machine without a GPU says what it would do with one."""

    class Activations:
        def __init__(self, *shape: int) -> None:
            self.shape, self.dtype, self.device, self.is_cuda = shape, dtype, torch.device(device), device == "cuda"

        def new_empty(self, _: tuple[int, ...]) -> Activations:
            return self

        def expand(self, *shape: int) -> Activations:
            return Activations(*shape)

        def numel(self) -> int:
            return math.prod(self.shape)

    monkeypatch.setattr("hymo.kernels.dispatch.machine_obstacle", lambda _: "")
    x, model = Activations(2, 33, CONFIG.model.dim), build_hymo(MIXED)
    rotation = torch.ones(1), torch.ones(1)
    packed = SequenceContext(rotation, rotation, cu_seqlens=BOUNDS, kernel=kernel)
    assert [block.can_compile(cast(Tensor, x), packed) for block in model.layers[:2]] == [attention, recurrence]
    rows = replace(packed, cu_seqlens=None)
    assert [block.can_compile(cast(Tensor, x), rows) for block in model.layers[:2]] == [True, recurrence]
    # Under autocast the residual stream keeps its type and attention gets another.
    monkeypatch.setattr("torch.is_autocast_enabled", lambda kind: kind == device)
    monkeypatch.setattr("torch.get_autocast_dtype", lambda _: torch.bfloat16)
    assert model.layers[0].can_compile(cast(Tensor, x), packed) == (device == "cuda")


def test_passes_without_gradients_or_with_telemetry_run_as_written() -> None:
    model = build_hymo(CONFIG)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    model.compile_blocks(backend=refuse)
    with torch.no_grad():
        model(torch.zeros(1, 8, dtype=torch.int64))
    record: dict[str, Tensor] = {}
    with torch.no_grad():
        model.loss(torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(Exception, match="compiled"):
        model.loss(torch.zeros(1, 9, dtype=torch.int64))
    model.mtp._compiled = []
    gradients(model, record)
    assert any(name.startswith("mla/logit_absmax") for name in record)


def test_units_are_compiled_once_for_any_number_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an attention that does not read the boundaries on the host, as on a GPU, and hooks around the experts."""

    def every_value(q: Tensor, _: Tensor, v: Tensor, *__: object) -> Tensor:
        return v.repeat_interleave(q.shape[2] // v.shape[2], 2) * q.mean()

    monkeypatch.setattr("hymo.models.mla.document_attention", every_value)
    monkeypatch.setattr("hymo.models.mla.one_call", lambda *_: True)
    model, graphs, hooked = build_hymo(CONFIG).train(), [], []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    for mixture in model.mixtures():
        mixture.register_forward_pre_hook(torch.compiler.disable(lambda *_: hooked.append(1)))
    torch.compiler.reset()
    model.compile_units(backend=backend)
    tokens, counts = torch.randint(0, 259, (1, 32)), []
    for documents in range(2, 14):
        bounds = torch.tensor([0, *range(1, documents), 32], dtype=torch.int32)
        sum(model.loss_sums(Window(tokens, tokens, bounds)).values()).backward()
        counts.append(len(graphs))
    assert len(hooked) == 12 * len(model.mixtures())
    # Before the experts, in them, two lengths of prediction heads; the second number shows that it changes. Some
    # compilers make a block that is cut elsewhere again for every number of documents, and soon not at all.
    assert counts == [4] + [5] * 11
