"""Telemetry of a training step: what is looked at, and that looking changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.models import Window, build_hymo, split_window
from hymo.training.passes import Passes, observes_apart
from hymo.training.ranks import ALONE

CONFIG = derive_config(load_config("hymo_tiny"), model={"capacity_factor": 1.0}, training={"seq_len": 32})
ROWS = [0, 33, 66, 99]


def tokens() -> Tensor:
    return torch.randint(0, 259, (2, 3, 33), generator=torch.Generator().manual_seed(1))


def windows(bounds: list[int] | None) -> list[Window]:
    """Two micro-batches of three rows."""
    cut = None if bounds is None else torch.tensor(bounds, dtype=torch.int32)
    return [split_window(part, cut) for part in tokens()]


Seen = list[tuple[int, bool]]
"""Rows of the passes through the first block, and whether they were made for gradients."""


def passed(
    apart: bool, record: dict[str, Tensor] | None, micro_batches: list[Window], seen: Seen | None = None
) -> tuple[Passes, list[Tensor]]:
    """Losses, gradients and router counts of one step."""
    model = build_hymo(CONFIG, seed=3).train()
    if seen is not None:
        note = lambda _, inputs: seen.append((len(inputs[0]), torch.is_grad_enabled()))  # noqa: E731
        model.layers[0].register_forward_pre_hook(note)
    passes = Passes(model, CONFIG, torch.device("cpu"), ALONE)
    passes.observes_apart = apart
    losses, trained = passes.run(micro_batches, 1.0, record)
    assert trained == sum(window.inputs.numel() for window in micro_batches)
    found = [*losses.values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return passes, [*found, *(mixture.tokens_per_expert for mixture in model.mixtures())]


@pytest.mark.parametrize(
    ("bounds", "first"), [(None, None), ([0, 20, 33, 50, 66, 70, 99], [0, 20, 33])], ids=["rows", "documents"]
)
def test_a_pass_apart_sees_the_first_row_and_changes_nothing(bounds: list[int] | None, first: list[int] | None) -> None:
    micro_batches, seen = windows(bounds), []
    record: dict[str, Tensor] = {}
    passes, observed = passed(True, record, micro_batches, seen)
    assert seen == [(1, False), (3, True), (3, True)]
    assert all(module.training for module in passes.copy.model.modules())
    for got, want in zip(observed, passed(False, None, micro_batches)[1], strict=True):
        assert torch.equal(got, want)
    alone = split_window(tokens()[0, :1], None if first is None else torch.tensor(first, dtype=torch.int32))
    expected: dict[str, Tensor] = {}
    passed(False, expected, [alone])
    assert {name.rpartition("/")[0] for name in record} == {
        "gdn/o_absmax", "gdn/state_absmax", "mla/logit_absmax", "moe/dropped",
    }  # fmt: skip
    assert record.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(record[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_telemetry_is_taken_apart_where_blocks_are_compiled() -> None:
    eager = derive_config(CONFIG, training={"torch_compile_gdn": False})
    found = [observes_apart(torch.device(kind), config) for kind in ("cuda", "cpu") for config in (CONFIG, eager)]
    assert found == [True, False, False, False]


def test_blocks_as_written_are_observed_while_they_train() -> None:
    record, micro_batches = {}, windows(ROWS)
    passes, _ = passed(False, record, micro_batches)
    whole: dict[str, Tensor] = {}
    passes.copy.model.head_inputs(micro_batches[0], whole)
    assert record.keys() == whole.keys()
    for name, value in whole.items():
        torch.testing.assert_close(record[name], value, rtol=1e-5, atol=1e-6, msg=name)
