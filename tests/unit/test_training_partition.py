"""Every parameter in exactly one group, from stated roles; the two optimizers built from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hymo.core.config import OptimizerConfig
from hymo.core.errors import TrainingError
from hymo.core.roles import Role
from hymo.training.optimizers import build_optimizers
from hymo.training.partition import goes_to_adamw, partition_parameters


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def parameter_roles(self):
        return {"weight": Role.SCALAR}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()
        self.proj = nn.Linear(4, 6, bias=False)
        self.conv = nn.Parameter(torch.ones(4, 1, 3))
        self.A_log = nn.Parameter(torch.ones(2, 2))
        self.gate = nn.Linear(4, 3, bias=False)
        self.experts = nn.Parameter(torch.randn(3, 5, 4))

    def parameter_roles(self):
        return {
            "norm.weight": Role.SCALAR,  # the child states the same
            "proj.weight": Role.MATRIX,
            "conv": Role.SCALAR,
            "A_log": Role.DECAY,
            "gate.weight": Role.ROUTER,
            "experts": Role.EXPERT,
        }

    def parameter_blocks(self):
        return {"proj.weight": (2, 4)}


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = Norm()
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.twin = self.blocks[0]  # a module reached by two paths

    def parameter_roles(self):
        return {"embed.weight": Role.EMBEDDING, "head.weight": Role.EMBEDDING}

    def loss(self, seed: int) -> torch.Tensor:
        x = self.embed(torch.randint(7, (16,), generator=torch.Generator().manual_seed(seed)))
        for block in self.blocks:
            x = x * block.norm.weight + block.proj(x)[:, :4] * block.conv.sum((-2, -1))
            x = x * torch.sigmoid(block.A_log.sum()) + block.gate(x).softmax(-1) @ block.experts.mean(1)
        return self.head(x * self.norm.weight).square().mean()


def config(**changes) -> OptimizerConfig:
    values = {
        "muon_lr": 0.02,
        "muon_momentum": 0.95,
        "muon_beta2": 0.95,
        "muon_weight_decay": 0.1,
        "ns_steps": 5,
        "adamw_lr": 3e-4,
        "adamw_betas": (0.9, 0.95),
        "adamw_eps": 1e-8,
        "adamw_weight_decay": 0.05,
        "decay_group_eps": 1e-12,
        "cautious_weight_decay": True,
        "optimizer_partition": "hybrid",
        "muon_normalize": True,
        "muon_scale": "frobenius",
        "ns_dtype": "bfloat16",
        "ns_coefficients": "polar_express",
    }
    return OptimizerConfig(**{**values, **changes})


@pytest.mark.parametrize(
    ("mode", "normuon"),
    [("hybrid", {"proj.weight"}), ("adamw", set()), ("normuon_all", {"proj.weight", "experts"})],
)
def test_every_parameter_is_in_exactly_one_group(mode, normuon):
    model = Toy()
    partition = partition_parameters(model, mode)
    assert set(partition.normuon) == {f"blocks.{i}.{name}" for i in (0, 1) for name in normuon}
    everything = [*partition.normuon.values(), *partition.adamw.values()]
    assert sorted(map(id, everything)) == sorted(map(id, model.parameters()))
    assert "head.weight" not in partition.roles
    assert set(partition.roles) == {name for name, _ in model.named_parameters()}
    assert partition.roles["blocks.1.A_log"] is Role.DECAY
    assert partition.blocks == {"blocks.0.proj.weight": (2, 4), "blocks.1.proj.weight": (2, 4)}
    assert set(partition.adamw_groups()[Role.EMBEDDING]) == {"embed.weight"}


def test_the_rule_over_all_roles_dimensions_and_modes():
    to_normuon = {("hybrid", Role.MATRIX), ("normuon_all", Role.MATRIX), ("normuon_all", Role.EXPERT)}
    for mode in ("hybrid", "adamw", "normuon_all"):
        for role in Role:
            for ndim in range(5):
                expected = not (ndim in (2, 3) and (mode, role) in to_normuon)
                assert goes_to_adamw(role, ndim, mode) is expected


def test_a_parameter_without_a_role_is_named():
    model = Toy()
    model.blocks[1].late = nn.Parameter(torch.zeros(2))
    with pytest.raises(TrainingError, match=r"blocks\.1\.late: no role"):
        partition_parameters(model)


def test_two_roles_are_named():
    model = Toy()
    model.parameter_roles = lambda: {"embed.weight": Role.EMBEDDING, "head.weight": Role.MATRIX}
    with pytest.raises(TrainingError, match=r"head\.weight: .*'matrix'.*'embedding'"):
        partition_parameters(model)


def test_a_stated_name_that_does_not_exist_is_named():
    model = Toy()
    model.parameter_roles = lambda: {"embed.weigth": Role.EMBEDDING}
    with pytest.raises(TrainingError, match=r"embed\.weigth.*did you mean 'embed\.weight'"):
        partition_parameters(model)


def test_a_matrix_must_be_one():
    model = Norm()
    model.parameter_roles = lambda: {"weight": Role.MATRIX}
    with pytest.raises(TrainingError, match=r"weight: shape \(4,\)"):
        partition_parameters(model)


@pytest.mark.parametrize("mode", ["hybrid", "adamw", "normuon_all"])
def test_decay_and_eps_of_each_group(mode):
    optimizers = build_optimizers(Toy(), config(optimizer_partition=mode))
    groups = {group["name"]: group for group in optimizers.adamw.param_groups}
    decays = {"expert": 0.05, "matrix": 0.05, "embedding": 0.0, "scalar": 0.0, "router": 0.0, "decay": 0.0}
    assert {name: g["weight_decay"] for name, g in groups.items()} == {name: decays[name] for name in groups}
    assert {name: g["eps"] for name, g in groups.items()} == {n: 1e-12 if n == "decay" else 1e-8 for n in groups}
    assert all(g["betas"] == (0.9, 0.95) and g["lr"] == g["initial_lr"] == 3e-4 for g in groups.values())
    assert ("expert" in groups) == (mode != "normuon_all")
    assert ("matrix" in groups) == (mode == "adamw")
    if mode == "adamw":
        assert optimizers.normuon is None
    else:
        assert all(g["lr"] == g["initial_lr"] == 0.02 for g in optimizers.normuon.param_groups)


def test_adamw_equals_the_formula_also_where_gradients_are_tiny():
    model = Toy()
    optimizers = build_optimizers(model, config())
    a_log, experts = model.blocks[0].A_log, model.blocks[0].experts
    wanted = {p: p.detach().double().numpy().copy() for p in (a_log, experts)}
    moments = {p: [np.zeros_like(w), np.zeros_like(w)] for p, w in wanted.items()}
    for step in range(1, 6):
        for p, eps, decay, size in ((a_log, 1e-12, 0.0, 1e-10), (experts, 1e-8, 0.05, 1.0)):
            p.grad = size * torch.randn(p.shape, generator=torch.Generator().manual_seed(step))
            g = p.grad.double().numpy()
            m = moments[p]
            m[0] = 0.9 * m[0] + 0.1 * g
            m[1] = 0.95 * m[1] + 0.05 * g * g
            move = (m[0] / (1 - 0.9**step)) / (np.sqrt(m[1] / (1 - 0.95**step)) + eps)
            wanted[p] = wanted[p] * (1 - 3e-4 * decay) - 3e-4 * move
        optimizers.step()
    for p, w in wanted.items():
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-6, atol=1e-7)
    assert np.abs(wanted[a_log] - 1).max() > 3e-4  # with the usual eps it would hardly move


def test_all_states_exist_before_the_first_step_and_advance_together():
    model = Toy()
    optimizers = build_optimizers(model, config())
    keys = {p: set(state) for optimizer in optimizers for p, state in optimizer.state.items()}
    assert set(keys) == set(model.parameters())
    model.loss(0).backward()
    model.blocks[1].experts.grad = None  # starved
    optimizers.step()
    assert {p: set(state) for optimizer in optimizers for p, state in optimizer.state.items()} == keys
    assert {float(s["step"]) for s in optimizers.adamw.state.values()} == {1.0}


def train(model, optimizers, seeds) -> list[float]:
    losses = []
    for seed in seeds:
        optimizers.zero_grad()
        loss = model.loss(seed)
        loss.backward()
        optimizers.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("copied", [1 << 28, 1, 40])
def test_measured_step_is_the_same_step_and_reports_its_ratio(copied, monkeypatch):
    monkeypatch.setattr("hymo.training.optimizers._COPIED", copied)
    model, plain = Toy(), Toy()
    measured, unmeasured = build_optimizers(model, config()), build_optimizers(plain, config())
    before = [p.detach().clone() for p in model.parameters()]
    for m in (model, plain):
        m.loss(0).backward()
    ratios = measured.step_measured()
    unmeasured.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    old = dict(zip((name for name, _ in model.named_parameters()), before, strict=True))
    assert set(ratios) == {"normuon.matrix", *(f"adamw.{r}" for r in Role if r != Role.MATRIX)}
    new = dict(model.named_parameters())
    for kind, optimizer in (("normuon", measured.normuon), ("adamw", measured.adamw)):
        for group in optimizer.param_groups:
            names = group["param_names"]
            weight = torch.cat([old[name].double().flatten() for name in names])
            update = torch.cat([new[name].detach().double().flatten() for name in names]) - weight
            want = float(update.norm() / weight.norm()) if weight.any() else 0.0
            assert ratios[f"{kind}.{group['name']}"] == pytest.approx(want, rel=1e-5), group["name"]
    assert {float(state["step"]) for state in measured.adamw.state.values()} == {1.0}


def test_a_measured_step_copies_a_part_at_a_time(monkeypatch):
    """The largest copy of AdamW's parameters, by their elements."""
    model, held = Toy(), []
    optimizers = build_optimizers(model, config())
    model.loss(0).backward()
    step = optimizers.adamw.step
    sizes = [p.numel() for group in optimizers.adamw.param_groups for p in group["params"]]

    def counted():
        held.append(sum(p.numel() for group in optimizers.adamw.param_groups for p in group["params"]))
        step()

    monkeypatch.setattr(optimizers.adamw, "step", counted)
    monkeypatch.setattr("hymo.training.optimizers._COPIED", max(sizes))
    optimizers.step_measured()
    assert sum(held) == sum(sizes)
    assert max(held) == max(sizes)
    assert len(optimizers.adamw.param_groups) > 1


def test_frozen_parameters_stay():
    model = Toy()
    model.blocks[0].requires_grad_(False)
    frozen = [p.detach().clone() for p in model.blocks[0].parameters()]
    optimizers = build_optimizers(model, config())
    train(model, optimizers, range(3))
    assert all(torch.equal(p, old) for p, old in zip(model.blocks[0].parameters(), frozen, strict=True))


def test_a_meta_model_can_be_partitioned_and_built():
    with torch.device("meta"):
        model = Toy()
    optimizers = build_optimizers(model, config())
    assert sum(len(g["params"]) for g in optimizers.groups) == len(list(model.parameters()))
