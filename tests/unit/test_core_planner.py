"""The planner's figures, limits and refusals, and the table of devices."""

from __future__ import annotations

import json

import pytest

from hymo.core.errors import UsageError
from hymo.core.hardware import DEVICES, GIB, device, match_device
from hymo.core.load import derive_config, load_config
from hymo.core.measured import MEASURED
from hymo.core.memory import training_memory
from hymo.core.planner import USABLE_MEMORY, communication, plan
from hymo.core.throughput import step_seconds, step_work

FLAGSHIP = load_config("hymo_750m")


def test_flagship_plan() -> None:
    result = plan(FLAGSHIP, "h200", 4, context=32_768, price=2.0)
    assert result.parameters.stored == 1_128_090_624
    assert result.parameters.active == 434_457_600
    assert result.parameters.used_per_token == 549_604_352
    assert result.cache_bytes == 134_217_728
    assert (result.tokens_per_step, result.steps) == (524_288, 57_220)
    assert result.tokens == 57_220 * 524_288
    assert result.grad_accum_steps == 8
    speed = result.throughput
    assert speed is not None
    # By hand: an eighth of a step's sequences in each of eight passes of four on each of four devices.
    tokens = 524_288 / 4
    products = 6 * 549_604_352 * tokens / (MEASURED.matmul * 989e12)
    attention = 3 * 8 * 16 * (128 + 128) * 4096 * tokens / (MEASURED.attention * 989e12)
    kept = (training_memory(FLAGSHIP, on_gpu=True, kept=1.0).activations // (4 * 4096)) * tokens
    rest = kept / (MEASURED.memory * 4.8e12) + 8 * 32 * MEASURED.gap_seconds + result.communication_bytes / 450e9
    assert speed.tokens_per_second == pytest.approx(524_288 / (products + attention + rest), rel=1e-6)
    assert speed.utilisation == pytest.approx(speed.tokens_per_second * result.flops_per_token / (4 * 989e12))
    assert speed.days == pytest.approx(result.tokens / speed.tokens_per_second / 86_400)
    assert speed.cost == pytest.approx(speed.days * 24 * 4 * 2.0)
    assert "carried over to: 4 ranks" in speed.basis
    assert json.loads(json.dumps(result.to_dict()))["parameters"]["parts"]["moe"] == 842_390_528


def test_what_a_lost_machine_costs() -> None:
    """4,000 steps between checkpoints or an hour, whichever is less."""
    speed = plan(FLAGSHIP, "a100-80", 4, price=2.0).throughput
    assert speed is not None
    assert (speed.lost_hours, speed.lost_cost) == (1.0, 8.0)
    rare = derive_config(FLAGSHIP, training={"checkpoint_minutes": None})
    speed = plan(rare, "a100-80", 4).throughput
    assert speed is not None
    assert speed.lost_hours == pytest.approx(4000 * 524_288 / speed.tokens_per_second / 3600)
    assert speed.lost_cost is None
    assert plan(FLAGSHIP).data_bytes == 2 * 57_220 * 524_288
    assert plan(derive_config(FLAGSHIP, training={"max_epochs": 4})).data_bytes == 57_220 * 524_288 // 2
    assert plan(derive_config(FLAGSHIP, model={"vocab_size": 65_536})).data_bytes == 4 * 57_220 * 524_288


def test_another_number_of_devices_keeps_the_step() -> None:
    result = plan(FLAGSHIP, gpus=1)
    assert result.tokens_per_step == 524_288
    assert result.grad_accum_steps == 32
    assert result.communication_bytes == 0
    # One gather of bf16 weights, one fp32 reduction, and a quarter of NorMuon's matrices twice in fp32; 3/4 of each
    # from other ranks. A reduction that is rounded comes after each of the 8 forward passes.
    muon = 2 * 4 * 226_689_024 // 4
    assert plan(FLAGSHIP, gpus=4).communication_bytes == ((2 + 4) * 1_128_090_624 + muon) * 3 // 4
    rounded = derive_config(FLAGSHIP, training={"reduce_dtype": "bfloat16"})
    assert plan(rounded, gpus=4).communication_bytes == ((2 + 8 * 2) * 1_128_090_624 + muon) * 3 // 4
    always = derive_config(FLAGSHIP, training={"reshard_after_forward": True})
    assert plan(always, gpus=4).communication_bytes == ((16 * 2 + 8 * 4) * 1_128_090_624 + muon) * 3 // 4


def test_replicas_exchange_gradients_once_a_step() -> None:
    """All-reduce among n receives 2 (n - 1)/n; NorMuon's results come from the owners among all four ranks."""
    stored, muon = 1_128_090_624, 4 * 226_689_024
    copies = derive_config(FLAGSHIP, training={"dp_replicate": 4})
    assert plan(copies, gpus=4).communication_bytes == 2 * 4 * stored * 3 // 4 + muon * 3 // 4
    pairs = derive_config(FLAGSHIP, training={"dp_replicate": 2})
    within, between = (2 + 4) * stored // 2, 2 * 4 * (stored // 2) // 2
    assert plan(pairs, gpus=4).communication_bytes == within + between + muon // 4 // 2 + muon // 2 * 3 // 4


def test_without_a_device_nothing_is_invented() -> None:
    result = plan(FLAGSHIP)
    assert result.throughput is None
    assert result.usable_memory_bytes is None
    assert result.levels["none"].fits is None
    assert result.context == 4096


def test_largest_micro_batch_is_the_largest() -> None:
    usable = int(device("h200").memory or 0) * USABLE_MEMORY
    for name, level in plan(FLAGSHIP, "h200").levels.items():
        assert level.largest_micro_batch
        fits = training_memory(FLAGSHIP, 1, level.largest_micro_batch, name, on_gpu=True)  # type: ignore[arg-type]
        breaks = training_memory(FLAGSHIP, 1, level.largest_micro_batch + 1, name, on_gpu=True)  # type: ignore[arg-type]
        assert fits.total <= usable < breaks.total


@pytest.mark.parametrize(
    ("gpu", "gpus", "training"),
    [
        ("a100-40", 8, (16, 1)),
        ("a100-40", 2, (64, 1)),
        ("a100-40", 16, (4, 2)),
        ("l40s", 4, (8, 4)),
    ],
)
def test_the_largest_micro_batch_of_ranks_fits_by_its_own_plan(gpu: str, gpus: int, training: tuple[int, int]) -> None:
    """Gradients are whole where a step has several passes, so memory falls at the size of one."""
    micro, passes = training
    shape = {"micro_batch_size": micro, "grad_accum_steps": passes, "dp_size": gpus}
    config = derive_config(FLAGSHIP, training=shape)
    usable = int(device(gpu).memory or 0) * USABLE_MEMORY
    for name, level in plan(config, gpu, gpus).levels.items():
        fitting = [
            size
            for size in range(1, 200)
            if training_memory(config, gpus, size, name, on_gpu=True).total <= usable  # type: ignore[arg-type]
        ]
        assert level.largest_micro_batch == max(fitting, default=0)


def test_a_refusal_of_ranks_names_the_setting_that_saves() -> None:
    shape = {"dp_size": 8, "grad_accum_steps": 4, "seq_len": 65_536}
    config = derive_config(load_config("hymo_900m"), training=shape, model={"max_seq_len": 65_536})
    with pytest.raises(UsageError, match=r"Set training\.reshard_after_forward=true, with which it fits"):
        plan(config, "rtx4090", 8)


def test_a_micro_batch_that_does_not_fit_is_a_warning_with_the_way_out() -> None:
    config = derive_config(FLAGSHIP, training={"micro_batch_size": 64, "grad_accum_steps": 2, "dp_size": 1})
    result = plan(config, "h200")
    assert result.levels["none"].fits is False
    assert any("micro_batch_size 64 does not fit" in w and "full" in w for w in result.warnings)


def test_what_fits_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match=r"hymo_900m does not fit on 1 x NVIDIA GeForce RTX 4090.*GiB"):
        plan(load_config("hymo_900m"), "rtx4090")


def test_a_refusal_names_devices_on_which_it_would_fit() -> None:
    config = load_config("hymo_900m")
    with pytest.raises(UsageError) as refused:
        plan(config, "rtx4090")
    said = str(refused.value)
    assert "It fits on 2 x rtx4090, or on 1 x a100-40 or a100-80" in said
    assert plan(config, "rtx4090", 2).levels["full"].largest_micro_batch
    assert plan(config, "l40s").levels["full"].largest_micro_batch
    assert "1 x rtx4090" not in said
    huge = derive_config(config, model={"dim": 8192, "n_layers": 512}, training={"seq_len": 4096})
    with pytest.raises(UsageError, match=r"usable\. Else take"):
        plan(huge, "rtx4090")


def test_the_designs_question() -> None:
    """What 30 B tokens of the flagship take on four A100 of 80 GB: days, cost and disk follow from the speed."""
    result = plan(derive_config(FLAGSHIP, scheduler={"total_tokens": 30 * 10**9}), "a100-80g", 4, price=1.5)
    assert result.gpu == "a100-80"
    assert result.steps == 30 * 10**9 // 524_288
    speed = result.throughput
    assert speed is not None
    assert 0.2 < speed.utilisation < 0.5  # slower than the arithmetic alone, by a factor that such runs have
    assert speed.days == pytest.approx(result.tokens / speed.tokens_per_second / 86_400)
    assert speed.cost == pytest.approx(speed.days * 24 * 4 * 1.5)
    assert "efficiencies of hymo_750m on one h200; carried over to: a100-80, 4 ranks" in speed.basis
    assert result.checkpoint_disk_bytes == 5 * result.checkpoint_bytes
    assert result.levels["none"].fits


def test_a_plan_names_the_choices_that_its_roofline_does_not_see() -> None:
    """Kernels of the other rule, and Newton-Schulz for the experts, are in no measured row."""
    speed = plan(derive_config(FLAGSHIP, model={"gdn_recurrence": "gated_delta"}), "h200").throughput
    assert speed is not None
    assert speed.basis.endswith("; carried over to: gated_delta")
    speed = plan(load_config("hymo_next"), "h200").throughput
    assert speed is not None
    assert speed.basis.endswith("; carried over to: hymo_next, gated_delta, normuon_all")
    assert "not measured" not in plan(derive_config(FLAGSHIP, training={"dp_size": 1}), "h200").throughput.basis


def test_advice_is_the_fastest_micro_batch_that_fits() -> None:
    config = derive_config(FLAGSHIP, training={"micro_batch_size": 1, "grad_accum_steps": 128, "dp_size": 1})
    result = plan(config, "h200")
    (advice,) = result.advice
    fits = result.levels["none"].largest_micro_batch
    assert fits is not None
    best = max(size for size in (1, 2, 4, 8, 16, 32, 64, 128) if size <= fits)
    assert f"micro_batch_size={best} --set training.grad_accum_steps={128 // best} --set training.dp_size=1:" in advice
    words = [word for word in advice.split(":")[0].split() if word != "--set"]
    followed = plan(load_config("hymo_750m", words), "h200")
    assert followed.advice == ()
    assert followed.tokens_per_step == result.tokens_per_step
    assert followed.throughput is not None
    assert f"{followed.throughput.tokens_per_second:,.0f} tokens/s expected" in advice
    too_large = derive_config(FLAGSHIP, training={"micro_batch_size": 64, "grad_accum_steps": 2, "dp_size": 1})
    assert "and fits" in plan(too_large, "h200").advice[0]


def test_recomputation_takes_time() -> None:
    times = [
        step_seconds(step_work(FLAGSHIP, 1, 4, level, communication(FLAGSHIP, 1, 32)), device("h200"))
        for level in ("none", "selective", "full")
    ]
    assert times[0] < times[1] < times[2] < 4 / 3 * times[0]
    with pytest.raises(ValueError, match="cpu has no rates"):
        step_seconds(step_work(FLAGSHIP, 1, 4, "none"), device("cpu"))


def test_uneven_division_and_long_context_warn() -> None:
    warnings = plan(FLAGSHIP, gpus=3, context=32_768).warnings
    (refused,) = (w for w in warnings if "do not divide" in w)
    assert "training refuses that" in refused
    assert any("beyond model.max_seq_len" in w for w in warnings)


def test_a_cpu_has_no_throughput_estimate() -> None:
    result = plan(load_config("hymo_demo"), "cpu")
    assert result.throughput is None
    assert any("peak is unknown" in w for w in result.warnings)
    fp32 = plan(load_config("hymo_demo"), "h100")
    assert fp32.throughput is None
    assert any("fp32" in w for w in fp32.warnings)


def test_checkpoint_disk() -> None:
    result = plan(FLAGSHIP)
    states = training_memory(FLAGSHIP, on_gpu=True)
    assert result.checkpoint_bytes == states.masters + states.normuon + states.adamw
    assert result.checkpoint_disk_bytes == 5 * result.checkpoint_bytes  # two, best, stable, being written
    fewer = derive_config(FLAGSHIP, training={"keep_best": False})
    assert plan(fewer).checkpoint_disk_bytes == 4 * result.checkpoint_bytes
    kept = derive_config(FLAGSHIP, training={"keep_every": 10_000})
    assert plan(kept).checkpoint_disk_bytes == 10 * result.checkpoint_bytes


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"context": 0}, {"price": -1.0}])
def test_numbers_out_of_range(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(wrong))}"):
        plan(FLAGSHIP, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reported", "key"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-PCIE-40GB", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("cpu", "cpu"),
    ],
)
def test_names_of_the_driver(reported: str, key: str) -> None:
    found = match_device(reported)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "reported",
    [
        "NVIDIA H20",
        "NVIDIA GH200 480GB",
        "NVIDIA GB200",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "Tesla T4",
        "",
    ],
)
def test_unknown_devices_have_no_figures(reported: str) -> None:
    assert match_device(reported) is None


def test_peaks_are_dense_bf16() -> None:
    assert device("A100-80").peak == device("a100-40").peak == 312e12
    assert device("h100").peak == device("h200").peak == 989e12
    assert device("h200").memory == 139 * GIB
    assert device("a100-80g") is device("a100-80GB") is device("a100-80")
    assert all(d.source for d in DEVICES)


def test_unknown_device_name() -> None:
    with pytest.raises(UsageError, match=r"h20.*did you mean 'h200'"):
        device("h20")
