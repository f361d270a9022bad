"""Whole models with the Triton kernels as one graph, forward and backward, where no GPU is: interpreted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from hymo.core.load import derive_config, load_config
from hymo.models import build_hymo
preset, rule, fields, lengths = sys.argv[1], sys.argv[2], eval(sys.argv[3]), eval(sys.argv[4])
model = build_hymo(derive_config(load_config(preset), model={"gdn_recurrence": rule, **fields})).train()
model.kernel = "triton"
compiled = torch.compile(lambda x: model(x).square().mean(), fullgraph=True, backend="aot_eager")
for length in lengths:
    tokens = torch.randint(259, (1, length), generator=torch.Generator().manual_seed(length))
    model.zero_grad()
    loss = compiled(tokens)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients and all(bool(gradient.isfinite().all()) for gradient in gradients)
    torch.testing.assert_close(loss, model(tokens).square().mean(), rtol=1e-5, atol=1e-8)
    print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def graphs(preset: str, rule: str, fields: object, lengths: object) -> list[int]:
    """How many graphs there are after each length."""
    words = [sys.executable, "-c", PROGRAM, preset, rule, repr(fields), repr(lengths)]
    environment = {name: value for name, value in os.environ.items() if name != "HYMO_KERNELS"}
    environment["TRITON_INTERPRET"] = "1"
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    return [int(line) for line in said.stdout.split()]


@pytest.mark.heavy
@pytest.mark.parametrize("rule", ["gated_linear", "gated_delta"])
def test_an_eight_layer_twin_of_the_flagship_is_one_graph(rule: str) -> None:
    assert graphs("hymo_750m", rule, {"n_layers": 8, "mla_layers": [0, 4]}, [16]) == [1]


@pytest.mark.heavy
@pytest.mark.parametrize("rule", ["gated_linear", "gated_delta"])
def test_five_lengths_are_two_graphs(rule: str) -> None:
    """One for the first length, and one for any."""
    assert graphs("hymo_tiny", rule, {}, [20, 33, 47, 64, 70]) == [1, 2, 2, 2, 2]
