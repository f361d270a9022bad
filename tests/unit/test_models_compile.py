"""A compiled model is the model as written. Here without a GPU: attention, experts and prediction heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.models import HyMo, Window, build_hymo

CONFIG = derive_config(
    load_config("hymo_tiny"), model={"mla_layers": [0, 1, 2], "n_layers": 3}, training={"seq_len": 32}
)
BOUNDS = torch.tensor([0, 20, 33, 50, 66], dtype=torch.int32)


def gradients(model: HyMo, telemetry: dict[str, Tensor] | None = None) -> list[Tensor]:
    from hymo.models import split_window

    tokens = torch.randint(0, 259, (2, 33), generator=torch.Generator().manual_seed(1))
    sums = model.loss_sums(split_window(tokens, BOUNDS), telemetry=telemetry)
    torch.stack(list(sums.values())).sum().backward()
    return [*(x.detach() for x in sums.values()), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("level", "capture"), [("none", False), ("none", True), ("selective", False), ("full", False)])
def test_losses_gradients_and_counts_are_those_of_the_blocks_as_written(level: str, capture: bool) -> None:
    plain, compiled = build_hymo(CONFIG).double(), build_hymo(CONFIG).double()
    names = [name for name, _ in compiled.named_parameters()]
    compiled.compile_blocks(capture=capture, backend="aot_eager")
    assert [name for name, _ in compiled.named_parameters()] == names
    for model in (plain, compiled):
        model.train()
        model.checkpointing = level
    for got, want in zip(gradients(compiled), gradients(plain), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(compiled.mixtures(), plain.mixtures(), strict=True):
        assert ours.tokens_per_expert.sum() == 128
        assert torch.equal(ours.tokens_per_expert, theirs.tokens_per_expert)


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
    # Before the experts, in them, two lengths of prediction heads; the second number shows that it changes. A block that
    # is cut elsewhere some compilers make again for every number of documents, and soon not at all.
    assert counts == [4] + [5] * 11
