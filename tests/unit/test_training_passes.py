"""Telemetry of a training step: what is looked at, and that looking changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.models import Window, build_hymo, split_window
from hymo.training.passes import Passes
from hymo.training.ranks import ALONE

CONFIG = derive_config(load_config("hymo_tiny"), model={"capacity_factor": 1.0}, training={"seq_len": 32})
ROWS = [0, 33, 66, 99]


def windows(bounds: list[int] | None) -> list[Window]:
    """Two micro-batches of three rows."""
    tokens = torch.randint(0, 259, (2, 3, 33), generator=torch.Generator().manual_seed(1))
    cut = None if bounds is None else torch.tensor(bounds, dtype=torch.int32)
    return [split_window(part, cut) for part in tokens]


def passed(apart: bool, record: dict[str, Tensor] | None, micro_batches: list[Window]) -> tuple[Passes, list[Tensor]]:
    """Losses, gradients and router counts of one step."""
    model = build_hymo(CONFIG, seed=3).train()
    passes = Passes(model, CONFIG, torch.device("cpu"), ALONE)
    passes.observes_apart = apart
    losses, tokens = passes.run(micro_batches, 1.0, record)
    assert tokens == sum(window.inputs.numel() for window in micro_batches)
    found = [*losses.values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return passes, [*found, *(mixture.tokens_per_expert for mixture in model.mixtures())]


@pytest.mark.parametrize("bounds", [None, [0, 20, 33, 50, 66, 70, 99]], ids=["rows", "documents"])
def test_a_pass_apart_sees_the_first_row_and_changes_nothing(bounds: list[int] | None) -> None:
    micro_batches = windows(bounds)
    record: dict[str, Tensor] = {}
    passes, observed = passed(True, record, micro_batches)
    assert all(module.training for module in passes.copy.model.modules())
    for got, want in zip(observed, passed(False, None, micro_batches)[1], strict=True):
        assert torch.equal(got, want)
    first = micro_batches[0]
    cut = None if bounds is None else torch.tensor([b for b in first.cu_seqlens.tolist() if b <= 32])
    alone = replace(first, inputs=first.inputs[:1], targets=first.targets[:1], cu_seqlens=cut)
    expected: dict[str, Tensor] = {}
    passed(False, expected, [alone])
    assert {name.rpartition("/")[0] for name in record} == {
        "gdn/o_absmax", "gdn/state_absmax", "mla/logit_absmax", "moe/dropped",
    }  # fmt: skip
    assert record.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(record[name], value, rtol=1e-5, atol=1e-6, msg=name)
        assert not record[name].requires_grad


def test_blocks_as_written_are_observed_while_they_train() -> None:
    record, micro_batches = {}, windows(ROWS)
    passes, _ = passed(False, record, micro_batches)
    whole: dict[str, Tensor] = {}
    passes.copy.model.head_inputs(micro_batches[0], whole)
    assert record.keys() == whole.keys()
    for name, value in whole.items():
        torch.testing.assert_close(record[name], value, rtol=1e-5, atol=1e-6, msg=name)
