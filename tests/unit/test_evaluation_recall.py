"""Every generator against a reading of its own tokens that shares no code with it; the rule's limits, by its kernel."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hymo.ablations import recall as comparison
from hymo.ablations.recall import MODELS, compare, train_on
from hymo.core.errors import UsageError
from hymo.core.load import derive_config, load_config
from hymo.evaluation import recall as tasks
from hymo.evaluation.recall import SUITE, Task, TaskBatch, accuracy
from hymo.kernels import gated_delta

seeds = st.integers(0, 2**63 - 1)
small = st.integers(1, 8)


def read(batch: TaskBatch) -> list[tuple[list[int], dict[int, int]]]:
    """Rows as (tokens, answer by position)."""
    assert batch.tokens.shape == batch.targets.shape
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    rows = zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)
    return [(row, {i: t for i, t in enumerate(targets) if t != -100}) for row, targets in rows]


@given(seeds, small, st.integers(0, 8))
@settings(max_examples=50)
def test_recall_and_rewritten(seed: int, pairs: int, more: int) -> None:
    batch = tasks.rewritten(seed, 3, pairs, pairs + more, 9, 5)
    for row, answers in read(batch):
        facts, questions = row[: 2 * (pairs + more)], row[2 * (pairs + more) :]
        memory = {}
        for key, value in zip(facts[::2], facts[1::2], strict=True):
            assert 0 <= key < 9 <= value < 14
            memory[key] = value
        assert sorted(questions) == sorted(memory)
        assert len(memory) == pairs
        assert answers == {len(facts) + i: memory[key] for i, key in enumerate(questions)}
    once = tasks.recall(seed, 2, pairs, 9, 5)
    for row, _ in read(once):
        assert len(set(row[: 2 * pairs : 2])) == pairs
    assert torch.equal(once.tokens, tasks.rewritten(seed, 2, pairs, pairs, 9, 5).tokens)


@given(seeds, small)
@settings(max_examples=30)
def test_copy(seed: int, length: int) -> None:
    for row, answers in read(tasks.copy(seed, 3, length, 7)):
        assert row[length] == 7
        assert len(row) == 2 * length
        written = [answers[i] for i in range(length, 2 * length)]
        assert written == row[:length]
        assert row[length + 1 :] == written[:-1]  # each symbol is read after it was asked for
        assert len(answers) == length


@given(seeds, small, st.integers(1, 30))
@settings(max_examples=50)
def test_passkey(seed: int, digits: int, noise: int) -> None:
    length = 2 * digits + noise
    for row, answers in read(tasks.passkey(seed, 3, length, digits, 4)):
        start = row.index(10)
        question = row.index(11)
        key = row[start + 1 : start + 1 + digits]
        assert all(0 <= digit < 10 for digit in key)
        assert start + digits < question == length - digits
        assert [answers[i] for i in range(question, length)] == key
        assert row[question + 1 :] == key[:-1]
        assert len(answers) == digits
        rest = row[:start] + row[start + 1 + digits : question]
        assert all(12 <= token < 16 for token in rest)


@given(seeds, st.integers(1, 40))
@settings(max_examples=30)
def test_parity(seed: int, length: int) -> None:
    for row, answers in read(tasks.parity(seed, 3, length)):
        assert answers == {t: "".join(map(str, row[: t + 1])).count("1") % 2 for t in range(length)}


@given(seeds, st.integers(1, 12), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_permutations(seed: int, length: int, n: int) -> None:
    """Against matrices: a permutation p moves the content of place i to place p(i)."""
    elements = list(permutations(range(n)))
    matrices = [torch.eye(n, dtype=torch.int64)[list(p)].T for p in elements]
    for row, answers in read(tasks.permutation(seed, 2, length, n)):
        product = torch.eye(n, dtype=torch.int64)
        for t, token in enumerate(row):
            product = matrices[token] @ product
            assert torch.equal(matrices[answers[t]], product)
        assert len(answers) == length


def test_the_whole_group_is_reached_and_does_not_commute() -> None:
    batch = tasks.permutation(0, 64, 200, 5)
    assert batch.tokens.unique().numel() == batch.targets.unique().numel() == 120
    pairs = tasks.permutation(0, 500, 2, 3)
    products = {tuple(row): targets[1] for row, targets in zip(*map(Tensor.tolist, pairs), strict=True)}
    assert len(products) == 36
    assert sum(products[a, b] != products[b, a] for a, b in products) == 18  # all that two non-commuting elements give


def test_batches_depend_on_seed_and_sizes_alone() -> None:
    for task in SUITE:
        drawn = [*task.sizes, *task.tests.values()]
        for draw in drawn:
            first, again, other = draw(5, 4), draw(5, 4), draw(6, 4)
            assert torch.equal(first.tokens, again.tokens)
            assert torch.equal(first.targets, again.targets)
            assert not torch.equal(first.tokens, other.tokens)
            assert int(first.tokens.max()) < task.vocab_size
            assert int(first.targets.max()) < task.vocab_size
            assert bool((first.targets != -100).any())
        assert torch.equal(task.draw(5, 4).tokens, task.sizes[5 % len(task.sizes)](5, 4).tokens)


def test_sizes_that_do_not_fit() -> None:
    wrong: list[tuple[Any, tuple[int, ...], str]] = [
        (tasks.recall, (0, 1, 5, 4, 4), "5 different keys of 4"),
        (tasks.rewritten, (0, 1, 3, 2, 4, 4), "writes: 2 for 3 keys"),
        (tasks.copy, (0, 1, 0, 4), "length: 0"),
        (tasks.passkey, (0, 1, 8, 4, 4), "length: 8 for 4 digits"),
        (tasks.permutation, (0, 1, 4, 7), "n: 7"),
    ]
    for function, sizes, said in wrong:
        with pytest.raises(UsageError, match=said):
            function(*sizes)


def test_accuracy_counts_asked_positions() -> None:
    batch = TaskBatch(torch.tensor([[0, 1, 2], [2, 1, 0]]), torch.tensor([[-100, 1, 0], [2, -100, -100]]))

    class Echo(torch.nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(tokens, 3).float()

    assert accuracy(Echo(), batch, rows=1) == pytest.approx(2 / 3)


def test_what_the_delta_rule_can_track() -> None:
    """One state and one key: with beta 2 each 1 flips its sign for ever; with beta in (0, 1) it never does."""
    batch = tasks.parity(0, 2, 1000)
    bits = batch.tokens.double()[..., None]  # (B, T, one head)
    unit = torch.ones(2, 1000, 1, 1, dtype=torch.float64)
    nothing, start = torch.zeros_like(unit), torch.ones(2, 1, 1, 1, dtype=torch.float64)

    def run(beta: Tensor) -> Tensor:
        no_decay = torch.zeros_like(beta)
        o, _ = gated_delta(unit, unit, nothing, beta, no_decay, initial_state=start, implementation="recurrent")
        return o[..., 0, 0]

    flipped = run(2 * bits)
    assert torch.equal((flipped < 0).long(), batch.targets)
    for strength in (0.1, 0.5, 1 - 1e-9):
        values = run(strength * bits)
        assert bool((values >= 0).all())
        assert bool((values.diff(dim=1) <= 0).all())  # a count of ones that fades, never a parity


TINY = ("model.dim=16", "model.gdn_d_inner=16", "model.gdn_headdim=8", "model.gdn_d_state=4", "model.moe_inter_dim=16")


def test_the_comparison_trains_every_model_on_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def draw(seed: int, rows: int) -> TaskBatch:
        drawn.append(seed)
        return tasks.parity(seed, rows, 8)

    monkeypatch.setattr(comparison, "SUITE", (Task("bits", 2, 0.5, (draw,), {"8": draw}),))
    told: list[dict[str, Any]] = []
    rows = compare(seeds=2, overrides=[*TINY, "scheduler.total_steps=2"], progress=told.append)
    assert rows == told
    assert [row["model"] for row in rows] == list(MODELS)
    assert all(len(row["accuracy"]["8"]) == 2 and min(row["accuracy"]["8"]) >= 0 for row in rows)
    per_model = [0, 1, 1 << 40, 2, 3, 1 << 40]
    assert drawn == per_model * len(MODELS)
    for names, said in (({"tasks": ["bit"]}, "did you mean 'bits'"), ({"models": ["x"]}, "unknown model")):
        with pytest.raises(UsageError, match=said):
            compare(**names)  # type: ignore[arg-type]


def test_the_models_differ_in_mixing_alone() -> None:
    base = load_config(comparison.CONFIG)
    assert base.training.seq_len <= base.model.max_seq_len
    configs = [derive_config(base, model=dict(changes)).model for changes in MODELS.values()]
    for one, other in pairwise(configs):
        assert (one.dim, one.n_layers, one.gdn_ffn_dim, one.moe_placement) == (
            other.dim,
            2,
            other.moe_inter_dim,
            "none",
        )


def test_training_learns_what_a_lookup_needs() -> None:
    """The last token again: any of the models learns it in a few steps, so loop, optimizers and masks work."""

    def echo(seed: int, rows: int) -> TaskBatch:
        tokens = torch.randint(0, 8, (rows, 12), generator=torch.Generator().manual_seed(seed))
        targets = tokens.clone()
        targets[:, ::2] = -100
        return TaskBatch(tokens, targets)

    config = load_config(comparison.CONFIG, [*TINY, "scheduler.total_steps=30", "model.vocab_size=8"])
    model = train_on(Task("echo", 8, 1 / 8, (echo,), {}), config, seed=0)
    assert accuracy(model, echo(1 << 40, 32)) > 0.9
