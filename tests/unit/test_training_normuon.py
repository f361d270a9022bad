"""NorMuon against a per-matrix NumPy implementation in float64 and against torch.optim.Muon."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from hymo.core.errors import ConfigError, UsageError
from hymo.training.normuon import NorMuon, newton_schulz

POLAR = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]
JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
SHAPES = [(24, 8), (8, 24), (16, 16), (16, 16), (13, 7), (7, 13), (1, 5), (5, 1), (3, 12, 6), (2, 5, 11), (16, 16)]


def oracle_polynomial(x: np.ndarray, coefficients: str) -> np.ndarray:
    """The odd polynomials act on the singular values alone, so apply them there instead of to the matrix."""
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    norm = math.sqrt(float((s**2).sum()))
    s = s / (1.02 * norm + 1e-6) if coefficients == "polar_express" else s / (norm + 1e-7)
    for a, b, c in POLAR if coefficients == "polar_express" else JORDAN:
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ vt


class Oracle:
    """One weight matrix, straight from the formulas."""

    def __init__(self, w: np.ndarray, **options) -> None:
        self.w = w.astype(np.float64)
        self.m = np.zeros_like(self.w)
        self.v = np.zeros(len(w))
        self.o = {"coefficients": "polar_express", "wd": 0.1, "cautious": True, "normalize": True, "rms": False}
        self.o |= options

    def step(self, g: np.ndarray, lr: float) -> None:
        rows, columns = self.w.shape
        self.m = 0.95 * self.m + 0.05 * g
        ortho = oracle_polynomial(0.05 * g + 0.95 * self.m, self.o["coefficients"])
        if self.o["normalize"]:
            self.v = 0.95 * self.v + 0.05 * np.array([np.mean(row**2) for row in ortho])
            even = np.stack([row / (math.sqrt(v) + 1e-8) for row, v in zip(ortho, self.v, strict=True)])
            goal = 0.2 * math.sqrt(rows * columns) if self.o["rms"] else np.linalg.norm(ortho)
            ortho = even * goal / np.linalg.norm(even)
        if not self.o["rms"]:
            ortho = ortho * math.sqrt(max(1.0, rows / columns))
        elif not self.o["normalize"]:
            ortho = ortho * 0.2 * math.sqrt(max(rows, columns))
        agree = np.sign(ortho) * np.sign(self.w) == 1
        decay = np.where(agree, self.w, 0.0) if self.o["cautious"] else self.w
        self.w = self.w - lr * ortho - lr * self.o["wd"] * decay


def parameters(shapes=SHAPES, seed=0, scale=0.3) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(scale * torch.randn(shape, generator=generator)) for shape in shapes]


def gradients(params, step: int) -> list[torch.Tensor]:
    """Noise with a spread of row scales plus a pull on the weights, so that errors feed back."""
    generator = torch.Generator().manual_seed(1000 + step)
    grads = []
    for p in params:
        noise = torch.randn(p.shape, generator=generator)
        rows = torch.logspace(-1, 1, p.shape[-2])[:, None]
        grads.append(0.01 * (noise * rows + p.detach()))
    return grads


def run(optimizer, params, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        for p, g in zip(params, gradients(params, step), strict=True):
            p.grad = g
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 + step) / 20
        optimizer.step()


def relative(a: torch.Tensor, b) -> float:
    b = torch.as_tensor(b, dtype=torch.float64).reshape(a.shape)
    return float((a.detach().double() - b).norm() / b.norm())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"coefficients": "jordan"},
        {"cautious": False},
        {"normalize": False},
        {"rms": True},
        {"rms": True, "normalize": False},
        {"wd": 0.0},
    ],
    ids=str,
)
def test_equals_the_per_matrix_oracle_over_20_steps(options):
    params = parameters()
    start = [p.detach().clone() for p in params]
    oracles = [[Oracle(w, **options) for w in p.detach().reshape(-1, *p.shape[-2:]).numpy()] for p in params]
    optimizer = NorMuon(
        params,
        0.02,
        weight_decay=options.get("wd", 0.1),
        cautious=options.get("cautious", True),
        normalize=options.get("normalize", True),
        scale="rms" if options.get("rms") else "frobenius",
        ns_coefficients=options.get("coefficients", "polar_express"),
        ns_dtype="float32",
    )
    for step in range(20):
        lr = 0.02 * (1 + step) / 20
        weights = [
            torch.tensor(np.stack([o.w for o in stack])).float().reshape(p.shape)
            for stack, p in zip(oracles, params, strict=True)
        ]
        for stack, g in zip(oracles, gradients(weights, step), strict=True):
            for o, matrix in zip(stack, g.reshape(-1, *g.shape[-2:]).double().numpy(), strict=True):
                o.step(matrix, lr)
    run(optimizer, params, 20)
    for p, stack, old in zip(params, oracles, start, strict=True):
        expected = np.stack([o.w for o in stack])
        assert relative(p, expected) < 1e-5
        assert relative(p, old.double().numpy()) > 1e-2  # it moved


@pytest.mark.parametrize("scale", ["frobenius", "rms"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_equals_torch_muon_without_normalisation(scale, precision, monkeypatch):
    """torch.optim.Muon has the same momentum (average, Nesterov); it casts by Tensor.bfloat16, which fp32 replaces."""
    if precision == "float32":
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    # Without vectors: their one singular value sits at the steep end of the quintic, where rounding grows to 2e-5.
    shapes = [s for s in SHAPES if len(s) == 2 and min(s) > 1]
    ours, theirs = parameters(shapes), parameters(shapes)
    start = [p.detach().clone() for p in ours]
    rule = {"frobenius": "original", "rms": "match_rms_adamw"}[scale]
    muon = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn=rule)
    optimizer = NorMuon(
        ours, 0.02, normalize=False, scale=scale, cautious=False, ns_coefficients="jordan", ns_dtype=precision
    )
    run(optimizer, ours, 20)
    run(muon, theirs, 20)
    for a, b, old in zip(ours, theirs, start, strict=True):
        if precision == "float32":
            assert relative(a, b.detach()) < 1e-5
        else:  # bf16 has 8 bits: compare the movement
            assert relative(a - old, b.detach() - old) < 3e-2


@pytest.mark.parametrize("coefficients", ["polar_express", "jordan"])
@pytest.mark.parametrize("shape", [(7, 13), (13, 7), (2, 3, 9, 9), (1, 4)])
def test_newton_schulz_applies_its_polynomial_to_the_singular_values(coefficients, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    kept = x.clone()
    y = newton_schulz(x, 5, coefficients, torch.float32)
    assert torch.equal(x, kept)
    assert y.shape == x.shape
    for got, matrix in zip(y.reshape(-1, *shape[-2:]), x.reshape(-1, *shape[-2:]), strict=True):
        assert relative(got, oracle_polynomial(matrix.double().numpy(), coefficients)) < 5e-5
    singular = torch.linalg.svdvals(y)
    assert singular.min() > 0.6
    assert singular.max() < 1.25
    half = newton_schulz(x, 5, coefficients)
    assert half.dtype == torch.bfloat16
    if min(shape[-2:]) > 1:  # a single singular value lands anywhere in the range
        assert relative(half.float(), y.double()) < 0.06


def test_a_rank_one_matrix_in_bf16_keeps_zero_rows_zero():
    x = torch.zeros(6, 9)
    x[2] = torch.arange(9.0)
    y = newton_schulz(x)
    assert torch.count_nonzero(y) == torch.count_nonzero(y[2]) == 8


@pytest.mark.parametrize("scale", ["frobenius", "rms"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("missing", [True, False])
def test_zero_and_missing_gradients_move_nothing(scale, normalize, missing):
    params = parameters()
    start = [p.detach().clone() for p in params]
    optimizer = NorMuon(params, 0.02, scale=scale, normalize=normalize)
    for _ in range(3):
        for p in params:
            p.grad = None if missing else torch.zeros_like(p)
        optimizer.step()
    assert all(torch.equal(p, old) for p, old in zip(params, start, strict=True))


def test_a_missing_gradient_is_a_zero_gradient():
    with_zero, without = parameters(), parameters()
    for params in (with_zero, without):
        optimizer = NorMuon(params, 0.02)
        run(optimizer, params, 2)
        for p in params:
            p.grad = torch.zeros_like(p) if params is with_zero else None
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(with_zero, without, strict=True))


@pytest.mark.parametrize("scale", ["frobenius", "rms"])
@pytest.mark.parametrize("ns_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("entry", [1e-12, 1e-20, 1e-38, 1e12])
def test_extreme_gradients_stay_finite_and_dead_matrices_fade(entry, ns_dtype, scale):
    params = parameters([(64, 32), (8, 40), (3, 8, 8)])
    live = parameters([(64, 32), (8, 40), (3, 8, 8)])
    moved = []
    for group, size in ((params, entry), (live, 1.0)):
        start = [p.detach().clone() for p in group]
        optimizer = NorMuon(group, 0.02, scale=scale, ns_dtype=ns_dtype, weight_decay=0.0)
        for p in group:
            p.grad = size * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
        optimizer.step()
        assert all(torch.isfinite(p).all() for p in group)
        moved.append([float((p.detach() - old).norm()) for p, old in zip(group, start, strict=True)])
    for tiny, full in zip(*moved, strict=True):
        if entry > 1:
            assert tiny == pytest.approx(full, rel=2e-2)
        else:
            assert tiny < (0.2 if entry > 1e-15 else 1e-3) * full


def test_the_rms_scale_has_rms_one_fifth():
    params = parameters([(40, 10), (10, 40), (3, 6, 9)])
    start = [p.detach().clone() for p in params]
    optimizer = NorMuon(params, 0.5, scale="rms", weight_decay=0.0)
    for p, g in zip(params, gradients(params, 0), strict=True):
        p.grad = g
    optimizer.step()
    for p, old in zip(params, start, strict=True):
        rms = (p - old).square().mean((-2, -1)).sqrt() / 0.5
        torch.testing.assert_close(rms, torch.full_like(rms, 0.2), rtol=1e-5, atol=0)


def test_decay_is_strictly_cautious():
    """Where update or weight is zero, and where they disagree, nothing decays."""
    p = nn.Parameter(torch.tensor([[1.0, -1.0, 0.0, 2.0]]))
    p.grad = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    plain = nn.Parameter(p.detach().clone())
    plain.grad = p.grad.clone()
    NorMuon([p], 0.1, weight_decay=0.5).step()
    NorMuon([plain], 0.1, weight_decay=0.0).step()
    torch.testing.assert_close(plain.detach() - p.detach(), torch.tensor([[0.05, 0.0, 0.0, 0.0]]))


def test_blocks_equal_separate_matrices():
    shapes = [(5, 8), (3, 8), (8, 8)]
    separate = parameters(shapes)
    fused = nn.Parameter(torch.cat([p.detach() for p in separate]))
    stack = nn.Parameter(torch.stack([fused.detach(), 2 * fused.detach()]))
    single = [nn.Parameter(2 * p.detach()) for p in separate]
    one = NorMuon([*separate, *single], 0.02, ns_dtype="float32")
    two = NorMuon([fused, stack], 0.02, ns_dtype="float32", blocks={fused: (5, 3, 8), stack: (5, 3, 8)})
    for step in range(5):
        grads = gradients([*separate, *single], step)
        grads[1] *= 0.01  # a small block beside large ones
        for p, g in zip([*separate, *single], grads, strict=True):
            p.grad = g
        fused.grad = torch.cat(grads[:3])
        stack.grad = torch.stack([fused.grad, torch.cat(grads[3:])])
        one.step()
        two.step()
    torch.testing.assert_close(fused.detach(), torch.cat([p.detach() for p in separate]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(stack[0], fused, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(stack[1].detach(), torch.cat([p.detach() for p in single]), rtol=1e-5, atol=1e-6)
    whole = nn.Parameter(torch.cat([p.detach() for p in parameters(shapes)]))
    run(NorMuon([whole], 0.02, ns_dtype="float32"), [whole], 5)
    assert relative(whole, fused.detach().double()) > 1e-3  # the blocks matter


def test_columns_equal_separate_matrices():
    shapes = [(6, 4), (6, 10), (6, 4)]
    separate = parameters(shapes)
    wide = nn.Parameter(torch.cat([p.detach() for p in separate], 1))
    one = NorMuon(separate, 0.02, ns_dtype="float32")
    two = NorMuon([wide], 0.02, ns_dtype="float32", columns={wide: (4, 10, 4)})
    assert two.state[wide]["second_moment"].shape == (6, 3)
    for step in range(5):
        grads = gradients(separate, step)
        grads[1] *= 0.01
        for p, g in zip(separate, grads, strict=True):
            p.grad = g
        wide.grad = torch.cat(grads, 1)
        one.step()
        two.step()
    torch.testing.assert_close(wide.detach(), torch.cat([p.detach() for p in separate], 1), rtol=1e-5, atol=1e-6)
    moments = torch.cat([one.state[p]["second_moment"] for p in separate], 1)
    torch.testing.assert_close(two.state[wide]["second_moment"], moments, rtol=1e-5, atol=1e-9)
    with pytest.raises(UsageError, match="has 18 columns"):
        NorMuon([wide], 0.02, columns={wide: (4, 10)})


def test_small_stacks_give_the_same_update(monkeypatch):
    whole, cut = parameters(), parameters()
    run(NorMuon(whole, 0.02, ns_dtype="float32"), whole, 3)
    monkeypatch.setattr("hymo.training.normuon._STACK_ELEMENTS", 300)
    run(NorMuon(cut, 0.02, ns_dtype="float32"), cut, 3)
    for a, b in zip(whole, cut, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_state_exists_before_the_first_step_and_keeps_its_keys():
    params = parameters()
    optimizer = NorMuon(params, 0.02)
    before = {i: {k: v.shape for k, v in s.items()} for i, s in optimizer.state_dict()["state"].items()}
    assert set(before) == set(range(len(params)))
    for i, p in enumerate(params):
        assert before[i] == {"momentum": p.shape, "second_moment": (*p.shape[:-1], 1)}
    run(optimizer, params, 2)
    after = {i: {k: v.shape for k, v in s.items()} for i, s in optimizer.state_dict()["state"].items()}
    assert after == before


def test_a_restored_state_continues_bit_exactly(tmp_path):
    params = parameters()
    optimizer = NorMuon(params, 0.02)
    run(optimizer, params, 4)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    others = [nn.Parameter(p.detach().clone()) for p in params]
    restored = NorMuon(others, 0.5)
    restored.load_state_dict(copy.deepcopy(torch.load(tmp_path / "state.pt")))
    run(optimizer, params, 4, start=4)
    run(restored, others, 4, start=4)
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


def test_each_group_has_its_own_rate_and_a_closure_is_called_with_gradients():
    a, b = parameters([(4, 4), (4, 4)])
    old = a.detach().clone()
    optimizer = NorMuon([{"params": [("a", a)], "lr": 0.0}, {"params": [("b", b)], "lr": 0.1}], 0.02)

    def closure() -> float:
        optimizer.zero_grad()
        loss = (a * b).sum()
        loss.backward()
        return float(loss.detach())

    before = float((a * b).sum().detach())
    assert optimizer.step(closure) == pytest.approx(before)
    assert torch.equal(a, old)
    assert float((a * b).sum().detach()) < before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"momentum": 1.0}, ConfigError),
        ({"scale": "spectral"}, ConfigError),
        ({"ns_dtype": "float16"}, ConfigError),
        ({"ns_coefficients": "cubic"}, ConfigError),
        ({"ns_steps": 0}, ConfigError),
    ],
)
def test_options_out_of_range_are_named(options, error):
    with pytest.raises(error, match=next(iter(options))):
        NorMuon(parameters(), 0.02, **options)


def test_parameters_it_cannot_take_are_named():
    matrix = nn.Parameter(torch.zeros(4, 3))
    with pytest.raises(UsageError, match="gain"):
        NorMuon([("gain", nn.Parameter(torch.zeros(3)))], 0.02)
    with pytest.raises(UsageError, match=r"w is torch\.bfloat16"):
        NorMuon([("w", nn.Parameter(torch.zeros(3, 3, dtype=torch.bfloat16)))], 0.02)
    with pytest.raises(UsageError, match="4 rows"):
        NorMuon([("w", matrix)], 0.02, blocks={matrix: (2, 1)})
