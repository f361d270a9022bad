"""A small prepared data set and a small configuration that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer, prepare, sample_paths
from hymo.training.run import open_run, run_folder
from training_helpers import SmallDisk


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged text as shards."""
    folder = tmp_path_factory.mktemp("data") / "sample"
    paths = sample_paths()
    prepare([paths["train"]], folder, ByteTokenizer(), validation_inputs=[paths["validation"]])
    return folder


@pytest.fixture
def small(tmp_path: Path, dataset: Path) -> HyMoConfig:
    """hymo_tiny, smaller still: 12 steps of 4 x 64 tokens, fp32 Newton-Schulz."""
    return _small(tmp_path, dataset)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Iterator[Path]:
    """The folder of a run of `small` that has ended, with checkpoints 3, 6, 9 and 12. Copy it to change it."""
    config = derive_config(_small(tmp_path_factory.mktemp("runs"), dataset), training={"checkpoint_interval": 3})
    with open_run(derive_config(config, training={"keep_last": 9})) as trainer:
        trainer.train()
    folder = run_folder(config)
    files = sorted(folder.rglob("*"))
    yield folder
    assert sorted(folder.rglob("*")) == files, "a test wrote into the run that others share"


def _small(folder: Path, dataset: Path) -> HyMoConfig:
    return derive_config(
        load_config("hymo_tiny"),
        model={"dim": 32, "gdn_d_inner": 64, "n_routed_experts": 4, "moe_inter_dim": 32, "gdn_chunk_size": 16},
        optimizer={"ns_dtype": "float32"},
        scheduler={"total_steps": 12},
        training={
            "micro_batch_size": 2,
            "grad_accum_steps": 2,
            "seq_len": 64,
            "eval_interval": 6,
            "eval_sequences": 4,
            "checkpoint_interval": 6,
            "log_interval": 1,
        },
        run={"output_dir": str(folder), "data": str(dataset), "device": "cpu", "name": "small"},
    )
