"""The benchmark takes the trainer's own steps and counts what they process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymo.cli import main
from hymo.core.accounting import flops_per_token
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.hardware import device
from hymo.core.load import load_config
from hymo.data import ByteTokenizer, prepare, sample_paths
from hymo.training.bench import bench_training, covered, floors, kind_of
from hymo.training.run import open_run

SMALL = ["training.micro_batch_size=2", "training.seq_len=64", "scheduler.total_steps=40", "run.device=cpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "set"
    paths = sample_paths()
    prepare([paths["train"]], folder, ByteTokenizer(), validation_inputs=[paths["validation"]])
    return folder


def test_figures_belong_together_and_the_losses_are_the_trainers(data: Path, tmp_path: Path) -> None:
    config = load_config("hymo_tiny", [*SMALL, f"run.data={data}", f"run.output_dir={tmp_path}"])
    result = bench_training(config, seconds=1e-6, warmup=3)
    assert (result.steps, result.warmup_steps, result.tokens_per_step) == (1, 3, 128)
    assert result.tok_per_s == pytest.approx(result.steps * 128 / result.seconds)
    assert result.ms_per_step == pytest.approx(1e3 * result.seconds / result.steps)
    assert (result.mfu, result.peak_gib, result.breakdown_ms) == (None, None, {})
    assert result.optimizer_ms is not None
    assert 0 < result.optimizer_ms < 1e3 * result.seconds / result.steps * 10
    assert list(tmp_path.iterdir()) == []

    with open_run(config) as trainer:
        losses = [trainer.take_step(trainer.next_windows())[0]["train/loss"] for _ in range(4)]
    assert (result.loss_first, result.loss_last) == (losses[0], losses[3])


@pytest.mark.parametrize(
    ("change", "words"),
    [("run.data=null", "data prepare"), ("scheduler.total_steps=2", "total_steps")],
)
def test_what_cannot_be_measured_is_refused(data: Path, change: str, words: str) -> None:
    config = load_config("hymo_tiny", [*SMALL, f"run.data={data}", change])
    with pytest.raises(UsageError, match=words):
        bench_training(config, seconds=1e-6, warmup=3)


def test_floors_of_the_flagship() -> None:
    """By hand: 24 GDN blocks of 40 heads of 32 x 32, bf16; three heads of 64,256 logits."""
    config = load_config("hymo_750m")
    found = floors(config, 1_000_000, device("h200"))
    assert found["recurrence"] == pytest.approx(1e9 * 24 * 11 * 1280 * 2 / 4.8e12)
    assert found["cross-entropy"] == pytest.approx(1e9 * 3 * 64_256 * 4 / 4.8e12)
    whole = flops_per_token(config.model, 4096)
    assert found["matrix products"] + found["attention"] == pytest.approx(1e9 * whole / 989e12)
    assert floors(config, 1_000_000, None) == {}


def test_covered_time() -> None:
    """Against a count of thousandths."""
    spans = [(0.0, 0.5), (0.25, 0.375), (0.25, 0.75), (1.0, 1.25), (1.125, 1.5), (2.0, 2.0)]
    marks = {k for start, end in spans for k in range(round(1000 * start), round(1000 * end))}
    assert covered(spans) == pytest.approx(len(marks) / 1000) == 1.25
    assert covered([]) == 0


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_TNT", "matrix products"),
        (
            "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<...GroupProblemShape",
            "matrix products",
        ),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>", "attention"),
        ("cross_entropy_kernel", "cross-entropy"),
        ("triton_poi_fused_add_mul_0", "fused by the compiler"),
        ("Memcpy HtoD (Pageable -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>", "elementwise"),
        ("backward", "recurrence"),
        ("summarise_gradient", "recurrence"),
        ("gate_backward", "keys and gates"),
        ("add_all", "sums of gradients"),
        ("gradients_side_by_side", "keys and gates"),
    ],
)
def test_kernels_are_sorted_by_name(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


@pytest.mark.parametrize("name", ["2024", "a #b", "null", "[x", "a: b"])
def test_a_data_folder_of_any_name_is_taken_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def stop(config: HyMoConfig, **_: object) -> None:
        seen.append(config.run.data)
        raise UsageError("enough")

    monkeypatch.setattr("hymo.training.bench.bench_training", stop)
    assert main(["bench", "train", "hymo_tiny", "--data", name]) == 2
    assert seen == [name]
