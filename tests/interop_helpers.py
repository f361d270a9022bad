"""Exports of models that no run trained, for the tests of `hymo.interop`."""

from __future__ import annotations

from pathlib import Path

import torch

from hymo.core.config import HyMoConfig
from hymo.core.load import config_hash, dump_config
from hymo.data import Tokenizer
from hymo.interop.modeling_hymo import HymoConfig, HymoForCausalLM
from hymo.interop.names import MTP_PREFIX, hf_fields, to_hf
from hymo.models import HyMo
from hymo.models.checkpoint import Manifest
from hymo.training.checkpointer import Checkpointer


def save(model: HyMo, config: HyMoConfig, folder: Path, tokenizer: Tokenizer) -> Path:
    """A checkpoint of a model, in a folder of its own."""
    manifest = Manifest(1, "test", torch.__version__, config_hash(config), tokenizer.fingerprint(), "", 7, 700, 1.5, 1)
    saver = Checkpointer(folder / "checkpoints", dump_config(config), keep_last=1)
    saver.start({"model": model.state_dict()}, manifest)
    (result,) = saver.finished(wait=True)
    assert result.path is not None, result.error
    (folder / "config.yaml").write_text(dump_config(config))
    return result.path


def twin(model: HyMo) -> HymoForCausalLM:
    """The exported form of a model, in its own precision, without a detour over files."""
    hf = HymoForCausalLM(HymoConfig(**hf_fields(model.config)))
    tensors = to_hf(model.state_dict(), model.config)
    found = hf.load_state_dict({k: v for k, v in tensors.items() if not k.startswith(MTP_PREFIX)}, strict=False)
    assert found.unexpected_keys == []
    assert found.missing_keys == (["lm_head.weight"] if model.config.tie_embeddings else [])
    hf.tie_weights()
    return hf.to(model.embed.weight.dtype).eval()
