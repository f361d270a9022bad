"""Exports in a process of their own: moved, offline, `hymo` not importable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling
from hymo.interop.export import export_checkpoint
from hymo.models import HyMo, build_hymo
from interop_helpers import save

PROMPTS = ["Once upon a time", "A B-tree é", "x" * 40]
NEW = 100
HERE = Path(__file__).parent


def lively(config: HyMoConfig) -> HyMo:
    """Weights big enough that the text does not repeat one byte, and that experts are told apart."""
    model = build_hymo(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "embed.weight":
                parameter.mul_(8)
            elif name.endswith(("router", "head.weight")):
                parameter.mul_(4)
            elif parameter.ndim > 1 and not name.endswith("A_log"):
                parameter.mul_(2)
        for mixture in model.mixtures():
            mixture.bias.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(1))
    return model.eval()


def check(folder: Path, names: list[tuple[str, str, bool]], new: int) -> None:
    tokenizer = ByteTokenizer()
    wanted: dict[str, dict[str, Any]] = {}
    for preset, recurrence, tied in names:
        config = derive_config(
            load_config(preset), model={"gdn_recurrence": recurrence, "tie_embeddings": tied}, run={"tokenizer": "byte"}
        )
        model = lively(config)
        name = f"{preset}-{recurrence}-{tied}"
        export_checkpoint(save(model, config, folder / "runs" / name, tokenizer), folder / "first" / name)
        (folder / "moved").mkdir(exist_ok=True)
        place = (folder / "first" / name).rename(folder / "moved" / name)
        tokens = torch.randint(0, 259, (2, 200), generator=torch.Generator().manual_seed(4))
        torch.save(tokens, place.with_suffix(".tokens"))
        engine = Engine(model, tokenizer)
        with torch.no_grad():
            wanted[str(place)] = {
                "texts": [engine.generate(prompt, new, Sampling(temperature=0.0)).text for prompt in PROMPTS],
                "logits": model(tokens),
                "tied": tied,
                "islands": sum(
                    name.rsplit(".", 1)[-1] in ("A_log", "D_skip", "dt_bias", "router", "bias", "load_ema")
                    for name in model.state_dict()
                ),
                "context": config.model.max_seq_len,
            }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(HERE / "fresh_process.py")],
        input=json.dumps({"folders": list(wanted), "prompts": PROMPTS, "new": new}),
        env={**environment, "HF_HOME": str(folder / "cache")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    got = json.loads(done.stdout)
    for place, expected in wanted.items():
        found = got[place]
        assert found["keys"] == {}
        assert found["dtype"] == "torch.float32"
        assert found["tied"] is expected["tied"]
        assert found["context"] == expected["context"]
        assert found["ids"] == [[tokenizer.bos_id, *tokenizer.encode(prompt).tolist()] for prompt in PROMPTS]
        assert 0 in found["left"]
        assert (torch.load(Path(place).with_suffix(".logits")) - expected["logits"]).abs().max() < 1e-5
        if not expected["tied"]:  # an untrained tied head repeats the last byte
            assert max(len(set(text)) for text in expected["texts"]) > 8
        assert found["solo"] == expected["texts"]
        assert found["uncached"] == expected["texts"]
        assert found["batch"] == expected["texts"]
        assert len(found["fp32"]) == expected["islands"]
        assert 0 < found["bf16"] < 0.1
        assert Path(found["code"]).is_relative_to(folder / "cache")


def test_tiny_and_demo(tmp_path: Path) -> None:
    names = [
        ("hymo_tiny", "gated_linear", False),
        ("hymo_tiny", "gated_delta", True),
        ("hymo_demo", "gated_delta", False),
        ("hymo_demo", "gated_linear", True),
    ]
    check(tmp_path, names, NEW)


@pytest.mark.heavy
@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
def test_small(recurrence: str, tmp_path: Path) -> None:
    check(tmp_path, [("hymo_small", recurrence, recurrence == "gated_linear")], NEW)
