"""The commands and code blocks of the guide run, in order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.dynamic_module_utils

from hymo.cli import main
from hymo.models.checkpoint import load_model

PAGE = (Path(__file__).parents[2] / "docs" / "transformers.md").read_text(encoding="utf-8")


def test_the_guide_runs(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    shutil.copytree(finished, "runs/tiny")
    names: dict[str, Any] = {}
    blocks = re.findall(r"```(sh|python)\n(.*?)```", PAGE, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "python", "python", "python", "python", "sh"]
    for kind, block in blocks:
        if kind == "python":
            exec(block, names)
            continue
        for line in block.splitlines():
            hymo, *words = shlex.split(line)
            assert hymo == "hymo"
            assert main(words) == 0, line
    assert names["texts"][0][:16] == "Once upon a time"
    assert names["islands"] == {"A_log", "D_skip", "dt_bias", "weight", "e_score_correction_bias", "load_ema"}
    trained, back, tuned = (load_model(Path("runs") / run)[0].state_dict() for run in ("tiny", "back", "tuned"))
    assert all(torch.equal(tensor, back[name]) for name, tensor in trained.items())
    changed = {name.split(".", 2)[-1] for name, tensor in trained.items() if not torch.equal(tensor, tuned[name])}
    targets = {"attention.wq_b.weight", "attention.wkv_b.weight", "attention.wo.weight"}
    targets |= {"in_proj.weight", "out_proj.weight"}
    experts = {f"feed_forward.moe.{name}" for name in ("w1", "w2", "w3")}
    assert changed == targets | experts


def test_the_table_of_names_is_the_mapping() -> None:
    from hymo.interop import names

    table = PAGE.split("## Names")[1]
    shown = set(re.findall(r"[A-Za-z0-9_]+", table))
    for mapping in (names._ATTENTION, names._RECURRENCE):
        for ours, theirs in mapping.items():
            for name in (*ours.removesuffix(".weight").split("."), *theirs.removesuffix(".weight").split(".")):
                assert name in shown, name
