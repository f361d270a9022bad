"""The same training on 1, 2, 3 and 4 ranks: real processes over gloo, each group of them started once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rank_tasks as tasks
from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError
from hymo.core.launch import check_ranks
from hymo.core.load import derive_config, load_config
from hymo.models import build_hymo
from hymo.models.checkpoint import find_checkpoint, load_model
from hymo.training.partition import partition_parameters
from hymo.training.run import run_folder
from hymo.training.sharded_normuon import assign_owners, newton_schulz_cost
from rank_helpers import run_ranks

WORLDS = (1, 2, 3, 4)
SHORT = 8
"""Steps of the runs that are interrupted."""


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> HyMoConfig:
    return tasks.odd_config(tmp_path_factory.mktemp("ranks"), dataset)


def named(odd: HyMoConfig, name: str) -> HyMoConfig:
    return derive_config(odd, scheduler={"total_steps": SHORT}, run={"name": name})


@pytest.fixture(scope="session")
def worlds(odd: HyMoConfig) -> dict[int, list[dict[str, Any]]]:
    """What ranks 0, 1, ... of each world size found. Runs move from one world to the next, so the order matters."""
    rounded = derive_config(odd, optimizer={"ns_dtype": "bfloat16"})
    replicated = derive_config(odd, training={"dp_replicate": 2, "reshard_after_forward": True})
    whole = derive_config(replicated, training={"reshard_after_forward": False})
    recipe = derive_config(
        odd,
        model={"gdn_recurrence": "gated_delta", "mtp_depth": 0},
        optimizer={"optimizer_partition": "normuon_all"},
    )
    always: dict[str, Any] = {"curve": ("curve", {"config": odd}), "normuon": ("normuon_against_single", {})}

    def go(name: str, until: int | None = None) -> tuple[str, dict[str, Any]]:
        return "train", {"config": named(odd, name), "until": until}

    saves = run_folder(odd).parent
    plan: list[tuple[int, list[Any]]] = [
        (1, [(odd, {"curve": always["curve"], "rounded": ("curve", {"config": rounded}), "121": go("r121", 3)}),
            (recipe, {"recipe": ("curve", {"config": recipe})})]),
        (1, [(odd, {"straight": go("straight1"), "precise": ("precise", {"config": odd})})]),
        (4, [(odd, {**always, "42": go("r42", 4)}), (replicated, {
            "hsdp_curve": ("curve", {"config": replicated, "steps": 6}),
            "hsdp_whole": ("curve", {"config": whole, "steps": 6}),
            "hsdp_normuon": ("normuon_against_single", {"normalize": False, "scale": "rms"}),
            "hsdp": ("train", {"config": derive_config(named(replicated, "hsdp")), "until": 2}),
        })]),
        (2, [(odd, {
            **always,
            "rounded": ("curve", {"config": rounded}),
            "poisoned": ("poisoned", {"config": odd}),
            "straight": go("straight2"),
            "interrupted": go("r22", 4),
            "resumed": go("r22"),
            "121": go("r121", 6),
            "42": go("r42"),
            "23": go("r23", 4),
            "precise": ("precise", {"config": odd}),
            "sums": ("sums", {"config": odd}),
            "memory": ("memory", {"config": odd, "folder": saves / "memory"}),
            "agreement": ("agreement", {}),
            "troubled": ("troubled_saves", {"folder": saves / "troubled"}),
        }), (replicated, {"copies": ("curve", {"config": replicated, "steps": 3})}),
            (recipe, {"recipe": ("curve", {"config": recipe})})]),
        (3, [(odd, {**always, "23": go("r23")}), (recipe, {"recipe": ("curve", {"config": recipe})})]),
        (1, [(odd, {"121": go("r121")})]),
    ]  # fmt: skip
    found: dict[int, list[dict[str, Any]]] = {}
    for size, groups in plan:
        results = run_ranks(size, tasks.do, groups, timeout=240)
        for old, new in zip(found.setdefault(size, [{} for _ in range(size)]), results, strict=True):
            old.update(new)
    return found


def losses(records: list[dict[str, Any]], name: str = "train/loss") -> list[float]:
    return [record[name] for record in records if name in record]


def farthest(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Largest relative difference of the losses of any step."""
    want, got = np.array(losses(one["records"])), np.array(losses(other["records"]))
    return float(np.max(np.abs(got - want) / want))


@pytest.mark.parametrize("size", WORLDS[1:])
def test_the_curve_is_that_of_one_process(worlds: dict[int, Any], size: int) -> None:
    one, many = worlds[1][0]["curve"], worlds[size][0]["curve"]
    for name in ("train/loss", "train/mtp_1", "train/grad_norm"):
        np.testing.assert_allclose(losses(many["records"], name), losses(one["records"], name), rtol=1e-5)
    assert losses(one["records"])[-1] < losses(one["records"])[0] - 0.1
    assert many["records"][0].keys() == one["records"][0].keys()
    for name, value in one["records"][0].items():
        assert many["records"][0][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert many["tokens"] == one["tokens"] == tasks.STEPS * tasks.ROWS * 32
    apart = {n: np.linalg.norm(many["weights"][n] - w) / np.linalg.norm(w) for n, w in one["weights"].items()}
    print(f"{size} ranks, fp32: loss {farthest(one, many):.1e} apart, weights {max(apart.values()):.1e}")
    assert max(apart.values()) < 1e-4, apart
    np.testing.assert_array_equal(many["bias"], one["bias"])


@pytest.mark.parametrize("size", [2, 3])
def test_the_recipe_of_hymo_next_on_ranks(worlds: dict[int, Any], size: int) -> None:
    """Experts that NorMuon updates, the delta rule, no prediction heads: curve and weights of one process."""
    one, many = worlds[1][0]["recipe"], worlds[size][0]["recipe"]
    for name in ("train/loss", "train/grad_norm"):
        np.testing.assert_allclose(losses(many["records"], name), losses(one["records"], name), rtol=1e-5)
    apart = {n: np.linalg.norm(many["weights"][n] - w) / np.linalg.norm(w) for n, w in one["weights"].items()}
    assert max(apart.values()) < 1e-4, apart
    np.testing.assert_array_equal(many["bias"], one["bias"])


@pytest.mark.parametrize("size", WORLDS[1:])
def test_initial_weights_are_those_of_one_process(worlds: dict[int, Any], size: int) -> None:
    one, many = worlds[1][0]["curve"]["first"], worlds[size][0]["curve"]["first"]
    assert one.keys() == many.keys()
    assert all(np.array_equal(one[name], many[name]) for name in one)


@pytest.mark.parametrize("size", WORLDS[1:])
def test_tokens_go_to_the_same_experts(worlds: dict[int, Any], size: int) -> None:
    """Each rank's micro-batches of a step follow those of the rank before."""
    one, own = worlds[1][0]["curve"]["routes"], tasks.ROWS // size
    for rank, result in enumerate(worlds[size]):
        many = result["curve"]["routes"]
        assert len(many) == tasks.STEPS * own
        for place, (chosen, _) in enumerate(many):
            step, micro = divmod(place, own)
            expected, gap = one[step * tasks.ROWS + rank * own + micro]
            flipped = (chosen != expected).any(-1)
            assert (gap[flipped] < 1e-6).all()


def test_newton_schulz_in_bf16_keeps_the_loss(worlds: dict[int, Any]) -> None:
    one, two = worlds[1][0]["rounded"], worlds[2][0]["rounded"]
    print(f"2 ranks, bf16 Newton-Schulz: loss {farthest(one, two):.1e} apart")
    assert farthest(one, two) < 1e-4


@pytest.mark.parametrize("size", WORLDS[1:])
def test_sharded_normuon_is_normuon(worlds: dict[int, Any], size: int) -> None:
    """Prime sizes, matrices with fewer rows than ranks, fused and stacked ones, missing and zero gradients."""
    assert max(result["normuon"] for result in worlds[size]) < 1e-6


def test_whole_replicas_train_the_same(worlds: dict[int, Any]) -> None:
    """As many replicas as ranks: nothing is sliced."""
    one, two = worlds[1][0]["curve"], worlds[2][0]["copies"]
    np.testing.assert_allclose(losses(two["records"]), losses(one["records"])[:3], rtol=1e-5)


def test_replicas_of_shards_train_the_same(worlds: dict[int, Any], odd: HyMoConfig) -> None:
    one = worlds[1][0]["curve"]
    for layout in ("hsdp_curve", "hsdp_whole"):  # gradients dropped after each pass, and kept whole
        many = worlds[4][0][layout]
        for name in ("train/loss", "train/grad_norm"):
            np.testing.assert_allclose(losses(many["records"], name)[:6], losses(one["records"], name)[:6], rtol=1e-5)
    assert max(result["hsdp_normuon"] for result in worlds[4]) < 1e-6
    assert worlds[4][0]["hsdp"]["replicated"]
    model, _, manifest = load_model(run_folder(named(odd, "hsdp")))
    assert (manifest.step, manifest.world_size) == (2, 4)
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_bf16_gathers_and_keeps_fp32_masters(worlds: dict[int, Any]) -> None:
    one, two = worlds[1][0]["precise"], worlds[2][0]["precise"]
    assert two["dtypes"] == ["torch.float32"]
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=2e-3)
    assert two["losses"] != losses(worlds[2][0]["curve"]["records"])[:6]


def test_gradients_are_summed_over_ranks_once_a_step(worlds: dict[int, Any], odd: HyMoConfig) -> None:
    found = worlds[2][0]["sums"]
    units = odd.model.n_layers + sum(odd.model.has_moe(i) for i in range(odd.model.n_layers)) + 1
    passes = tasks.ROWS // odd.training.micro_batch_size // 2
    assert passes > 1
    assert found == {"once": units, "dropped": passes * units, "rounded": passes * units}


def test_compiled_and_recomputed_blocks_give_the_same(odd: HyMoConfig) -> None:
    found = run_ranks(2, tasks.do, [(odd, {"compiled": ("compiled", {"config": odd})})])[0]["compiled"]
    graphs, want = found.pop("graphs"), found.pop("none")
    assert want[0] > want[1] > 0
    for mode in ("none", "full"):  # with experts recomputed, attention runs as written
        assert any("scaled_dot_product_attention" in names for names in graphs[mode]), mode
    for got in found.values():
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_bad_gradient_on_one_rank_skips_the_step_on_all(worlds: dict[int, Any]) -> None:
    for result in worlds[2]:
        assert result["poisoned"]["events"] == [{"step": 2, "tensor": "layers.0.A_log", "in_a_row": 1}]
        assert result["poisoned"]["changed"] == [False, True]


def test_two_ranks_resume_bit_for_bit(worlds: dict[int, Any]) -> None:
    for result in worlds[2]:
        assert result["resumed"]["hash"] == result["straight"]["hash"]
        assert result["resumed"]["replicated"]
    first = worlds[2][0]
    assert plain(first["resumed"]["records"]) == plain(first["straight"]["records"])
    assert len(plain(first["straight"]["records"])) == SHORT + 2


def plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what a clock says."""
    return [{k: v for k, v in r.items() if k != "ts" and not k.startswith("perf/")} for r in records]


@pytest.mark.parametrize(("way", "size"), [("121", 1), ("23", 3), ("42", 2)])
def test_a_run_goes_on_with_other_ranks(worlds: dict[int, Any], way: str, size: int) -> None:
    want, got = worlds[1][0]["straight"]["records"], worlds[size][0][way]["records"]
    train = [[r for r in records if r["split"] == "train"] for records in (want, got)]
    assert [r["data/hash"] for r in train[1]] == [r["data/hash"] for r in train[0]]
    assert [r["tokens"] for r in train[1]] == [r["tokens"] for r in train[0]]
    for name in ("train/loss", "val/loss", "val/acceptance_1"):
        np.testing.assert_allclose(losses(got, name), losses(want, name), rtol=1e-5)
    assert [r["step"] for r in got if "val/loss" in r] == [4, 8]


def test_validation_is_the_same_for_any_number_of_ranks(worlds: dict[int, Any]) -> None:
    """Five rows on two ranks: one makes a pass for nothing."""
    one, two = ([r for r in worlds[n][0]["straight"]["records"] if r["split"] == "val"] for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert (a["val/tokens"], a["val/bytes"]) == (b["val/tokens"], b["val/bytes"])
        assert a["val/loss"] == pytest.approx(b["val/loss"], rel=1e-5)


def test_the_checkpoint_of_any_world_is_one_format(worlds: dict[int, Any], odd: HyMoConfig) -> None:
    """The model of a run that ended on three ranks, read by one process, is that of two ranks' slices."""
    model, config, manifest = load_model(run_folder(named(odd, "r23")))
    assert (manifest.step, manifest.world_size) == (SHORT, 3)
    assert sorted(manifest.trainer["rng"]) == ["cpu", "cpu-1", "cpu-2"]
    assert {p.shape for p in model.parameters()} == {p.shape for p in build_hymo(config).parameters()}
    other = load_model(run_folder(named(odd, "straight1")))[0]
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert float((ours - theirs).detach().norm() / theirs.detach().norm()) < 1e-4


def test_memory_is_flat_over_saves_on_every_rank(worlds: dict[int, Any]) -> None:
    for rank, result in enumerate(worlds[2]):
        sizes = result["memory"]
        print(f"rank {rank}: {sizes[4] / 2**20:.1f} MiB after 5 saves, {sizes[19] / 2**20:.1f} after 20")
        assert sizes[19] <= 1.05 * sizes[4]


def test_ranks_agree_on_failures(worlds: dict[int, Any]) -> None:
    first, last = (result["agreement"] for result in worlds[2])
    assert first["first"] == ("UsageError", "no", None)
    assert last["first"] == ("RankError", "rank 0: UsageError: no", True)
    assert first["everywhere"] == ("RankError", "rank 1: CheckpointError: gone", False)
    assert last["everywhere"] == ("CheckpointError", "gone", None)
    assert first["sum"] == last["sum"] == [[0, 2**40], [1, 2**40]]


def test_a_shared_file_system_may_be_slow_or_fail(worlds: dict[int, Any], odd: HyMoConfig) -> None:
    for result in worlds[2]:
        told = result["troubled"]
        assert [kind for kind in told if told[kind][0] == ""] == ["fine", "late", "again", "long"]
        assert told["late"][1] >= 0.6
        assert told["long"][1] >= 1.5
        assert "__1_0.distcp: written by another rank, but not seen here" in told["never"][0]
        assert "No space left on device" in told["full"][0]
    folder = run_folder(odd).parent / "troubled"
    assert find_checkpoint(folder)[1].step == 6
    assert sorted(path.name for path in folder.iterdir()) == [f"step-{step:08d}" for step in (1, 2, 5, 6)]


def test_a_failure_at_every_write_boundary_of_either_rank_leaves_the_last_good_one(
    odd: HyMoConfig, tmp_path: Path
) -> None:
    plan = [(odd, {"boundaries": ("boundaries", {"folder": tmp_path})})]
    first, last = (result["boundaries"] for result in run_ranks(2, tasks.do, plan))
    assert [(*row[:2], row[2] == "", row[3]) for row in first] == [(*row[:2], row[2] == "", row[3]) for row in last]
    newest = 0
    for step, (_, _, error, whole) in enumerate(first, 1):
        assert whole in (newest, step)  # its own, if it failed after the rename
        assert error == "" or "No space left" in error
        newest = whole
    print(len(first), "saves:", first)
    assert [victim for victim, _, error, _ in first if error == ""] == [0, 1]
    assert len(first) >= 12


def test_ranks_that_do_not_divide_are_refused(odd: HyMoConfig) -> None:
    check_ranks(odd, 6)
    with pytest.raises(ConfigError, match=r"12 forward passes per step do not divide over 5 ranks. Start 1, 2, 3, 4"):
        check_ranks(odd, 5)
    replicated = derive_config(odd, training={"dp_replicate": 2})
    check_ranks(replicated, 1)
    with pytest.raises(ConfigError, match=r"training\.dp_replicate: 2 replicas do not divide 3 ranks"):
        check_ranks(replicated, 3)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_owners_share_the_flagship_evenly(ranks: int) -> None:
    config = load_config("hymo_750m")
    partition = partition_parameters(build_hymo(config, device="meta"))
    costs = []
    for name, p in partition.normuon.items():
        rows, columns = partition.blocks.get(name, (p.shape[-2],)), partition.columns.get(name, (p.shape[-1],))
        costs.append(newton_schulz_cost(p.shape, rows, columns, config.optimizer.ns_steps))
    loads = [0] * ranks
    for cost, owner in zip(costs, assign_owners(costs, ranks), strict=True):
        loads[owner] += cost
    ratio = max(loads) / (sum(loads) / ranks)
    print(f"{ranks} ranks: largest load {ratio:.4f} x mean")
    assert ratio <= 1.05


def test_newton_schulz_cost_counts_multiplications() -> None:
    """A tall 6 x 4 matrix works on 4 x 4 Gram matrices: 4·4·6, 4·4·4 and 4·4·6 in each step."""
    assert newton_schulz_cost((6, 4), (6,), (4,), 5) == 5 * (96 + 64 + 96)
    assert newton_schulz_cost((3, 6, 4), (6,), (4,), 5) == 3 * newton_schulz_cost((6, 4), (6,), (4,), 5)
