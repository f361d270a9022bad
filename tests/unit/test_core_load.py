"""The strict YAML reader and what a bad file is answered with: place, key, expectation, suggestion."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hymo.core import yaml12
from hymo.core.config import GROUPS, HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.load import derive_config, dump_config, load_config


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-2.5E+1", -25.0),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ('"16"', "16"),
        ("[1, 2.0, no]", [1, 2.0, "no"]),
    ],
)
def test_core_schema(text: str, value: Any) -> None:
    parsed, _ = yaml12.parse(f"key: {text}", "t")
    assert parsed == {"key": value}
    assert type(parsed["key"]) is type(value)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_every_float_survives_dumping(number: float) -> None:
    config = derive_config(load_config("hymo_tiny"), training={"grad_norm_warn": abs(number) or 1.0})
    dumped, _ = yaml12.parse(dump_config(config), "t")
    assert dumped["training"]["grad_norm_warn"] == (abs(number) or 1.0)
    assert type(dumped["training"]["grad_norm_warn"]) is float


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8))
@example("no")
@example("1e3")
@example("true")
@example("")
@example("0x1f")
def test_every_string_survives_dumping(text: str) -> None:
    config = derive_config(load_config("hymo_tiny"), run={"data": text, "name": "1e3"})
    dumped, _ = yaml12.parse(dump_config(config), "t")
    assert dumped["run"]["data"] == text
    assert dumped["run"]["name"] == "1e3"


def test_a_dump_is_plain_text() -> None:
    lines = dump_config(load_config("hymo_tiny")).splitlines()
    assert "  adamw_eps: 1.0e-08" in lines or "  adamw_eps: 1e-08" in lines
    assert "  adamw_betas: [0.9, 0.95]" in lines


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.integers() | st.booleans() | st.none()))
def test_plain_mappings_read_as_any_yaml_reader_reads_them(mapping: dict[str, Any]) -> None:
    parsed, lines = yaml12.parse(yaml.safe_dump(mapping, default_style=None, indent=2) if mapping else "", "t")
    assert parsed == mapping
    assert set(lines) == {(key,) for key in mapping}


def test_lines_of_keys() -> None:
    _, lines = yaml12.parse("a: 1\n\nb:\n  c: 2\n", "t")
    assert lines == {("a",): 1, ("b",): 3, ("b", "c"): 4}


BAD_FILES = [
    ("base: hymo_tiny\nmodel:\n  dmi: 3\n", ":3", "unknown key 'model.dmi' (did you mean 'dim'?)"),
    ("base: hymo_tiny\nmodel:\n  dim: true\n", ":3", "'model.dim': input should be a valid integer, not True"),
    (
        'base: hymo_tiny\nmodel:\n  n_layers: "16"\n',
        ":3",
        "'model.n_layers': input should be a valid integer, not '16'",
    ),
    ("base: hymo_tiny\nmodel:\n  dim: 96.0\n", ":3", "'model.dim': input should be a valid integer"),
    ("base: hymo_tiny\ntraining:\n  spike_rewind: no\n", ":3", "'training.spike_rewind': input should be a valid bool"),
    (
        "base: hymo_tiny\nmodel:\n  mla_layers: [0, one]\n",
        ":3",
        "'model.mla_layers[1]': input should be a valid integer",
    ),
    ("base: hymo_tiny\nmodel:\n  gdn_gate: meen\n", ":3", "'model.gdn_gate': input should be 'mean', 'full' or 'none'"),
    ("base: hymo_tiny\nmodel:\n  dim: 96\n  dim: 128\n", ":4", "duplicate key 'model.dim', first given in line 3"),
    ("base: hymo_tiny\nmodel:\n  n_kv_groups: 3\n", ":3", "'model.n_kv_groups': 3 does not divide n_heads (4)"),
    ("base: hymo_tiny\ntraining:\n  seq_len: 9999\n", ":3", "'training.seq_len': 9999 exceeds model.max_seq_len (256)"),
    ("base: hymo_tiny\nmodle:\n  dim: 3\n", ":2", "unknown group 'modle' (did you mean 'model'?)"),
    ("base: hymo_tiny\nmodel: 3\n", ":2", "'model' must be a mapping"),
    ("base: hymo_tinny\n", ":1", "no such file or preset (did you mean 'hymo_tiny'?)"),
    ("base: [1]\n", ":1", "must name another preset or file"),
    ("base: hymo_tiny\nmodel:\n  ? [1]\n  : 2\n", ":3", "a key must be a plain name"),
    ("base: hymo_tiny\nmodel: {dim: 96\n", ":3", "not valid YAML"),
    ("base: hymo_tiny\nmodel: !!python/object:os.system {}\n", ":2", "not valid YAML"),
    ("model:\n  dim: 3\n", "run.yaml", "group 'optimizer' is missing"),
    ("- 1\n", "run.yaml", "a configuration is a mapping"),
    ("", "run.yaml", "is missing"),
]


@pytest.mark.parametrize(("text", "place", "says"), BAD_FILES)
def test_bad_files(tmp_path: Path, text: str, place: str, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "run.yaml" + (place if place.startswith(":") else "") in message
    assert says in message
    assert isinstance(caught.value, UsageError)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    lines = dump_config(load_config("hymo_tiny")).splitlines()
    path = write(tmp_path, "\n".join(line for line in lines if not line.strip().startswith("grad_clip:")))
    with pytest.raises(ConfigError, match=re.escape("'training.grad_clip' is missing")):
        load_config(path)


def test_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"nowhere/hymo_tinny\.yaml.*did you mean 'hymo_tiny'"):
        load_config("nowhere/hymo_tinny.yaml")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"base: x\nmodel: \x01\n"])
def test_binary_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        load_config(path)


def test_a_base_cycle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: b.yaml\n")
    (tmp_path / "b.yaml").write_text("base: a.yaml\n")
    with pytest.raises(ConfigError, match="cycle"):
        load_config(tmp_path / "a.yaml")


def test_a_file_over_a_base(tmp_path: Path) -> None:
    path = write(tmp_path, "base: hymo_tiny\nmodel:\n  n_layers: 2\noptimizer:\n  adamw_lr: 3e-4\n")
    config = load_config(path)
    assert config.model.n_layers == 2
    assert config.optimizer.adamw_lr == 3e-4
    assert config.model.dim == load_config("hymo_tiny").model.dim


def test_overrides_come_last_and_name_themselves(tmp_path: Path) -> None:
    config = load_config("hymo_tiny", ["training.seed=7", "run.name=no", "model.mla_layers=[1, 3]"])
    assert (config.training.seed, config.run.name, config.model.mla_layers) == (7, "no", (1, 3))
    for override, says in [
        ("model.dim=true", "--set model.dim=true: 'model.dim': input should be a valid integer"),
        ("model.dmi=1", "did you mean 'dim'"),
        ("modle.dim=1", "did you mean 'model'"),
        ("dim=1", "expected section.field=value"),
        ("model.dim", "expected section.field=value"),
        ("model.dim=[1", "--set model.dim=[1"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_config("hymo_tiny", [override])
        assert says in str(caught.value)


FIELDS = [(group, field.name) for group, cls in GROUPS.items() for field in dataclasses.fields(cls)]
NUMBERS = st.integers() | st.integers(-2, 40) | st.floats(allow_subnormal=False) | st.just(10**400)
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["16", "auto", "", "byte"])
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=2), SCALARS, max_size=1)
ODD = [True, "16", 8.0, 0.5, math.nan, math.inf, -math.inf, [], [3], [0, 1.5], 10**30, None, 0, -1, 3, {}]


def taken(call: Any) -> HyMoConfig | None:
    """The configuration that a request gives, or None where it is refused as such."""
    try:
        config = call()
    except ConfigError:
        return None
    assert isinstance(config, HyMoConfig)
    assert derive_config(config) == config
    return config


@pytest.mark.parametrize(("group", "field"), FIELDS)
def test_any_value_of_any_field_is_taken_or_refused(group: str, field: str) -> None:
    base = load_config("hymo_tiny")
    for value in ODD:
        config = taken(lambda value=value: derive_config(base, **{group: {field: value}}))
        if config is not None:
            got = getattr(getattr(config, group), field)
            assert got == (None if value is None else type(got)(value))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4))
def test_any_values_together_are_taken_or_refused(values: dict[tuple[str, str], Any]) -> None:
    changes: dict[str, dict[str, Any]] = {}
    for (group, field), value in values.items():
        changes.setdefault(group, {})[field] = value
    taken(lambda: derive_config(load_config("hymo_tiny"), **changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("model:\n  mla_layers: 3\n", "run.yaml:3: 'model.mla_layers': input should be a valid tuple, not 3."),
        ("model:\n  n_layers: 8.0\n", "run.yaml:3: 'model.n_layers': input should be a valid integer, not 8.0."),
        ("model:\n  rope_ratio: .nan\n", "run.yaml:3: 'model.rope_ratio': input should be a finite number, not nan."),
        ("model:\n  mtp_depth: .inf\n", "run.yaml:3: 'model.mtp_depth': input should be a valid integer"),
        ('model:\n  head_dim: "16"\n', "run.yaml:3: 'model.head_dim': input should be a valid integer, not '16'."),
        ("training:\n  seed: -1\n", "run.yaml:3: 'training.seed': input should be greater than or equal to 0"),
        ("training:\n  seed: 9223372036854775808\n", "'training.seed': input should be less than 9223372036854775808"),
    ],
)
def test_a_field_that_others_follow_is_checked_first(tmp_path: Path, changes: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_config(write(tmp_path, f"base: hymo_tiny\n{changes}"))


def test_overrides_are_checked_before_anything_follows_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("--set model.head_dim=0: 'model.head_dim': input should be")):
        load_config("hymo_tiny", ["model.head_dim=0"])
    (tmp_path / "parent.yaml").write_text("base: hymo_tiny\nmodel:\n  mla_layers: [0, true]\n")
    with pytest.raises(ConfigError, match=r"parent\.yaml:3: 'model\.mla_layers\[1\]'"):
        load_config(write(tmp_path, "base: parent.yaml\nmodel:\n  n_layers: 2\n"))
    part = write(tmp_path, "model:\n  n_layers: 4\n")
    with pytest.raises(ConfigError, match="group 'optimizer' is missing"):
        load_config(part, ["model.dim=64", "model.n_layers=8", "model.head_dim=8"])


@pytest.mark.parametrize("values", [None, 3, "dim", [("dim", 64)]])
def test_a_group_that_is_no_mapping_is_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="'model' must be a mapping"):
        derive_config(load_config("hymo_tiny"), model=values)
    with pytest.raises(ConfigError, match=r"unknown key 'model\.3'"):
        derive_config(load_config("hymo_tiny"), model={3: 1})  # type: ignore[dict-item]


def test_a_preset_starts_from_its_preset_whatever_lies_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load_config("hymo_700m")
    for name in ("hymo_750m", "hymo_125m", "hymo_tiny"):
        (tmp_path / name).write_text("nothing of use")
    monkeypatch.chdir(tmp_path)
    assert load_config("hymo_700m") == expected
    (tmp_path / "mine.yaml").write_text("base: hymo_tiny\n")
    with pytest.raises(ConfigError, match="hymo_tiny"):  # a file of one's own may start from a neighbour
        load_config("mine.yaml")
