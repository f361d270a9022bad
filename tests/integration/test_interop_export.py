"""`hymo export` and `hymo import`: what is written, what is refused, and the way back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config, load_config
from hymo.data import ByteTokenizer, load_manifest, load_tokenizer, sample_paths
from hymo.inference import Engine, Sampling
from hymo.interop import export as module
from hymo.interop.card import Facts, write_card
from hymo.interop.comparison import Difference, load_export
from hymo.models import build_hymo
from hymo.models.checkpoint import file_digest, load_model, read_manifest
from interop_helpers import save


@pytest.fixture(scope="module")
def exported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exports") / "hf"
    assert main(["export", str(finished), "--out", str(out)]) == 0
    return out


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_model(path)[0].state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_files_and_record(exported: Path, finished: Path) -> None:
    record = json.loads((exported / "hymo_export.json").read_text())
    assert {path.name for path in exported.iterdir()} == {*record["files"], "hymo_export.json"}
    assert set(record["files"]) == {
        *("README.md", "config.json", "generation_config.json", "configuration_hymo.py", "modeling_hymo.py"),
        *("model.safetensors", "hymo_mtp.safetensors", "hymo_config.yaml", "tokenizer.json", "tokenizer_config.json"),
    }
    assert all(file_digest(exported / name) == known for name, known in record["files"].items())
    assert len({path.stat().st_mode for path in exported.iterdir()}) == 1
    assert 0 < record["max_logit_difference"] == max(record["logit_differences"].values()) <= 1e-5
    manifest = read_manifest(finished / "checkpoints" / "step-00000012")
    assert record["checkpoint"]["config_hash"] == manifest.config_hash
    assert record["checkpoint"]["step"] == 12
    generation = json.loads((exported / "generation_config.json").read_text())
    assert generation["suppress_tokens"] == [1, 2]
    assert not list(exported.parent.glob(".*"))


def test_the_card_says_what_the_run_recorded(exported: Path, finished: Path) -> None:
    card = (exported / "README.md").read_text()
    data = load_config(finished / "config.yaml").run.data
    assert data is not None
    manifest = load_manifest(data)
    tokens = manifest.sources["sqlite_docs"]["train"]["tokens"]
    checkpoint = read_manifest(finished / "checkpoints" / "step-00000012")
    assert checkpoint.data
    assert f"| data | `{checkpoint.data}` |" in card
    assert f"| sqlite_docs | {tokens:,} | not recorded |" in card
    assert "| val/bits_per_byte | " in card
    assert "12 steps" in card
    for name in ("hymo_config.yaml", "README.md", "config.json", "hymo_export.json"):
        assert str(finished.parent) not in (exported / name).read_text()
        assert data not in (exported / name).read_text()


def test_the_card_lists_licences_and_what_eval_measured(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    assert main(["eval", str(run), "--max-bytes", "500"]) == 0
    assert main(["export", str(run), "--to", str(tmp_path / "hf")]) == 0
    assert "| validation-max_bytes-500/bits_per_byte | " in (tmp_path / "hf" / "README.md").read_text()
    facts = Facts(licences={"books": "public domain", "code": "MIT"}, sources={"books": 1200})
    card = write_card(load_config("hymo_tiny"), read_manifest(run / "checkpoints" / "step-00000012"), 1e-6, facts)
    assert "| books | 1,200 | public domain |\n| code | not recorded | MIT |" in card
    assert "| prediction heads | 2, stored in `hymo_mtp.safetensors`, used by HyMo alone |" in card
    bare = derive_config(load_config("hymo_tiny"), model={"mtp_depth": 0})
    card = write_card(bare, read_manifest(run / "checkpoints" / "step-00000012"), 1e-6, facts)
    assert "| prediction heads | none |" in card


def test_back_bit_for_bit(exported: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    back = tmp_path / "back"
    assert main(["import", str(exported), "--out", str(back), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["changed"] == []
    assert same(weights(back), weights(finished))
    old, new = (read_manifest(run / "checkpoints" / "step-00000012") for run in (finished, back))
    names = ("step", "tokens", "config_hash", "tokenizer", "data", "best_loss", "trainer", "commit")
    assert all(getattr(old, name) == getattr(new, name) for name in names)
    was, now = (load_config(run / "config.yaml") for run in (finished, back))
    assert (was.model, was.training, was.optimizer) == (now.model, now.training, now.optimizer)
    assert main(["checkpoint", "verify", str(back)]) == 0
    assert main(["export", str(back), "--out", str(tmp_path / "again")]) == 0
    for name in ("model.safetensors", "hymo_mtp.safetensors", "config.json", "tokenizer.json", "hymo_config.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()
    assert main(["generate", str(back), "A", "--max-new-tokens", "3"]) == 0


def test_shards(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "hf"
    assert main(["export", str(finished), "--out", str(out), "--max-shard-size", "60KB"]) == 0
    files = sorted(out.glob("model-*.safetensors"))
    assert len(files) > 2
    assert all(file.stat().st_size < 90_000 for file in files)
    assert main(["import", str(out), "--out", str(tmp_path / "back")]) == 0
    assert same(weights(tmp_path / "back"), weights(finished))
    files[0].unlink()
    assert main(["import", str(out), "--out", str(tmp_path / "none")]) == 1


PERTURBED = [
    "model.embed_tokens.weight",
    "model.norm.weight",
    "model.layers.0.self_attn.q_scale",
    "model.layers.0.self_attn.kv_b_proj.weight",
    "model.layers.0.mlp.gate.weight",
    "model.layers.0.mlp.gate.e_score_correction_bias",
    "model.layers.0.mlp.experts.gate_up_proj",
    "model.layers.1.linear_attn.A_log",
    "model.layers.1.linear_attn.conv1d.weight",
    "model.layers.3.linear_attn.skip_proj.weight",
]


@pytest.mark.parametrize("name", PERTURBED)
def test_a_perturbed_weight_is_refused(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = module.write_files

    def perturbed(*arguments: Any) -> None:
        write(*arguments)
        path = arguments[3] / "model.safetensors"
        tensors = load_file(path)
        step = torch.linspace(-0.02, 0.02, tensors[name].numel()).view_as(tensors[name])
        tensors[name] = tensors[name] + (50 * step if "gate." in name else step)
        save_file(tensors, path, metadata={"format": "pt"})

    monkeypatch.setattr(module, "write_files", perturbed)
    assert main(["export", str(finished), "--out", str(tmp_path / "hf")]) == 1
    assert "logits would differ" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_number_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Difference(0.0, float("nan"), 1.0).largest != Difference(0.0, float("nan"), 1.0).largest
    monkeypatch.setattr(module, "compare", lambda *_: Difference(0.0, float("nan"), 0.0))
    assert main(["export", str(finished), "--out", str(tmp_path / "hf")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_rounding_is_told_from_faults_in_fp64(finished: Path, tmp_path: Path) -> None:
    words = ["export", str(finished), "--out", str(tmp_path / "hf"), "--tolerance"]
    assert main([*words, "1e-9"]) == 1
    assert main([*words, "1e-9", "--double"]) == 0
    record = json.loads((tmp_path / "hf" / "hymo_export.json").read_text())
    assert record["compared_in"] == "float64"
    with safe_open(tmp_path / "hf" / "model.safetensors", "pt") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"torch.float32"}  # noqa: SIM118


def test_a_variant_without_an_exported_form_is_refused_before_any_work(
    small: HyMoConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = derive_config(small, model={"rope_pairing": "interleaved"})
    checkpoint = save(build_hymo(config), config, tmp_path / "run", ByteTokenizer())
    assert main(["export", str(checkpoint), "--out", str(tmp_path / "hf")]) == 2
    assert "error: model.rope_pairing: " in capsys.readouterr().err
    assert not (tmp_path / "hf").exists()


def test_a_fine_tuned_copy_comes_back(
    exported: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load_export(exported)
    with torch.no_grad():
        model.model.norm.weight += 0.5
    model.save_pretrained(tmp_path / "tuned")
    words = ["import", str(tmp_path / "tuned"), "--out", str(tmp_path / "back")]
    assert main(words) == 2
    for path in exported.glob("hymo_*"):
        shutil.copy(path, tmp_path / "tuned")
    assert main(words) == 0
    assert "warning: model.safetensors: not as exported" in capsys.readouterr().err
    old, new = weights(finished), weights(tmp_path / "back")
    assert torch.equal(new.pop("norm.weight"), old.pop("norm.weight") + 0.5)
    assert same(new, old)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def drop(path: Path, *names: str, **more: torch.Tensor) -> None:
    kept = {name: tensor for name, tensor in load_file(path).items() if name not in names}
    save_file({**kept, **more}, path)


def other_shape(folder: Path) -> None:
    path = folder / "hymo_config.yaml"
    path.write_text(dump_config(derive_config(load_config(path), model={"init_std": 0.3})))


DAMAGE: dict[str, tuple[int, str, Callable[[Path], object]]] = {
    "cut weights": (1, "model.safetensors: cannot be read", lambda f: cut(f / "model.safetensors")),
    "no weights": (1, "model.safetensors: cannot be read", lambda f: (f / "model.safetensors").unlink()),
    "no heads": (1, "mtp.0", lambda f: (f / "hymo_mtp.safetensors").unlink()),
    "no record": (2, "has no hymo_export.json", lambda f: (f / "hymo_export.json").unlink()),
    "no configuration": (2, "has no hymo_config.yaml", lambda f: (f / "hymo_config.yaml").unlink()),
    "cut record": (1, "hymo_export.json: cannot be read", lambda f: cut(f / "hymo_export.json")),
    "list": (1, "is no JSON object", lambda f: (f / "config.json").write_text("[]")),
    "later format": (1, "format version 9", lambda f: edit(f / "hymo_export.json", format_version=9)),
    "empty record": (1, "is damaged", lambda f: edit(f / "hymo_export.json", checkpoint={})),
    "other width": (1, "hidden_size is 40", lambda f: edit(f / "config.json", hidden_size=40)),
    "other base": (1, "rope_parameters", lambda f: edit(f / "config.json", rope_parameters={"rope_theta": 5.0})),
    "other model": (1, "initializer_range", other_shape),
    "missing tensor": (1, "model.norm.weight is missing", lambda f: drop(f / "model.safetensors", "model.norm.weight")),
    "unknown tensor": (1, "x.weight is none", lambda f: drop(f / "model.safetensors", **{"x.weight": torch.ones(2)})),
    "other tensor": (
        1,
        "is of shape (3,)",
        lambda f: drop(f / "model.safetensors", **{"model.norm.weight": torch.ones(3)}),
    ),
    "other tokenizer": (
        1,
        "not the tokenizer",
        lambda f: edit(
            f / "hymo_export.json",
            checkpoint={**json.loads((f / "hymo_export.json").read_text())["checkpoint"], "tokenizer": "abc"},
        ),
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_refused(name: str, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, message, damage = DAMAGE[name]
    damage(copy)
    assert main(["import", str(copy), "--out", str(tmp_path / "back")]) == code
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "back").exists()


def test_weights_alone_cannot_go_on_training(exported: Path, tmp_path: Path, dataset: Path) -> None:
    assert main(["import", str(exported), "--out", str(tmp_path / "back")]) == 0
    assert main(["train", "--resume", str(tmp_path / "back"), "--data", str(dataset)]) in (1, 2)


def test_a_trained_tokenizer_travels_along(small: HyMoConfig, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    text = sample_paths()["train"]
    assert main(["tokenizer", "train", str(text), "--out", str(tmp_path / "bpe"), "--vocab-size", "600"]) == 0
    config = derive_config(small, model={"vocab_size": 640}, run={"tokenizer": str(tmp_path / "bpe")})
    tokenizer = load_tokenizer(tmp_path / "bpe")
    model = build_hymo(config).eval()
    with torch.no_grad():
        model.embed.weight[600:] *= 30  # entries that no text has would win everywhere
    checkpoint = save(model, config, tmp_path / "run", tokenizer)
    assert main(["export", str(checkpoint), "--out", str(tmp_path / "hf")]) == 0
    shutil.rmtree(tmp_path / "bpe")
    assert main(["import", str(tmp_path / "hf"), "--out", str(tmp_path / "back")]) == 0
    engine = Engine.from_checkpoint(tmp_path / "back")
    assert engine.tokenizer.fingerprint() == tokenizer.fingerprint()
    wanted = engine.generate("The database", 20, Sampling(temperature=0.0)).tokens
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")
    inputs = theirs("The database", return_tensors="pt")
    ids = load_export(tmp_path / "hf").generate(**inputs, max_new_tokens=20, do_sample=False)
    assert ids[0, inputs["input_ids"].shape[1] :].tolist() == wanted
    assert max(wanted) < 600
