"""From YAML, presets and overrides to a checked `HyMoConfig`, with errors that name file, line and key."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from hymo.core import yaml12
from hymo.core.config import GROUPS, RULES, HyMoConfig
from hymo.core.errors import ConfigError, UsageError, nearest

CONFIG = "config.yaml"
"""Name of the resolved configuration in a run's folder and in each checkpoint."""
CHECKPOINTS = "checkpoints"
"""Folder of a run that holds its checkpoints."""
_BASE = "base"
_CADENCE = (
    "log_interval",
    "checkpoint_interval",
    "checkpoint_minutes",
    "keep_last",
    "keep_best",
    "keep_every",
    "keep_stable",
    "async_checkpoint",
    "hang_minutes",
    "hang_abort",
    "verdict_step",
    "verdict_loss",
    "verdict_gate",
    "profile_steps",
    "num_workers",
)
_LAYOUT = ("dp_replicate", "reshard_after_forward", "start_timeout_minutes", "rank_timeout_minutes")
"""How ranks share the work: nothing that a step gives depends on it beyond rounding."""

RESUMABLE = (
    "scheduler.total_steps",
    "scheduler.total_tokens",
    "training.max_epochs",
    *(f"training.{name}" for name in (*_CADENCE, *_LAYOUT)),
    "run.data",
    *(f"run.{name}" for name in ("device", "track", "alert", "health_port", "health_host")),
)
"""Fields that may change when a run is resumed: its length, and what leaves the steps already taken as they were."""

Tree = dict[str, dict[str, Any]]


def preset_names() -> list[str]:
    """Names that `load_config` knows without a file; mixtures of data lie in the same folder and are no such names."""
    folder = resources.files("hymo") / "presets"
    names = [item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")]
    return sorted(name for name in names if not name.endswith("_mixture"))


def load_config(path_or_preset: str | Path, overrides: Iterable[str] = ()) -> HyMoConfig:
    """Load a configuration.

    Args:
        path_or_preset: a YAML file, else a preset's name (a missing path falls back to the preset of its stem, so
            `configs/hymo_750m.yaml` works in any folder). A file may start from a preset: `base: hymo_demo`.
        overrides: `section.field=value` strings, read as YAML scalars and applied last.

    Raises:
        ConfigError: with file, line, key, what is expected and the nearest known name.
    """
    path, text = _find(path_or_preset)
    tree, where = _read(path, text, seen=())
    changes: Tree = {}
    for override in overrides:
        group, key, value = read_override(override)
        changes.setdefault(group, {})[key] = value
        where[(group, key)] = f"--set {override}"
    if not changes:
        return _build(tree, str(path), where)
    return _build(_merge(tree, changes, str(path), where), str(path), where)


def run_config(folder: Path) -> HyMoConfig:
    """Load the configuration of a run by its folder.

    Raises:
        UsageError: not the folder of a run.
        ConfigError: its configuration cannot be used.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise UsageError(f"{path}: not found. Give the folder of a run.")
    return load_config(path)


def derive_config(base: HyMoConfig, **changes: Mapping[str, Any]) -> HyMoConfig:
    """Return `base` with fields replaced per group, dependent fields recomputed and everything checked again.

    Dependent fields that a change does not name follow it: `dim` moves q_lora_rank (dim / 4) and gdn_d_inner (10/7 dim
    to the nearest whole head); rope_ratio and qk_rope_head_dim follow each other and head_dim; n_layers drops or
    continues the evenly spaced mla_layers; mtp_depth cuts or repeats mtp_loss_weights; total_steps and total_tokens
    replace each other; seq_len raises nothing and must fit max_seq_len.

    Example: `derive_config(config, model={"n_layers": 8}, training={"seed": 1})`.

    Raises:
        ConfigError: an unknown group or field, or a combination that does not fit.
    """
    source = "configuration"
    for group, values in changes.items():
        if not isinstance(values, Mapping):
            raise ConfigError(f"{source}: '{group}' must be a mapping of its fields, not {values!r}.")
    tree: Tree = {name: _plain_group(getattr(base, name)) for name in GROUPS}
    return _build(_merge(tree, {k: dict(v) for k, v in changes.items()}, source, {}), source, {})


def dump_config(config: HyMoConfig) -> str:
    """Return the configuration as YAML that `load_config` reads back to an equal value."""
    tree = {name: _plain_group(getattr(config, name)) for name in GROUPS}
    return yaml.dump(tree, Dumper=yaml12.Dumper, sort_keys=False, default_flow_style=False, width=110)


def config_hash(config: HyMoConfig) -> str:
    """Return a short hash of all that decides a run's result.

    Left out are its name, folders and device, how often it logs and saves, and how ranks share the work: those may
    change on resume.
    """
    tree = {name: _plain_group(getattr(config, name)) for name in GROUPS if name != "run"}
    for name in (*_CADENCE, *_LAYOUT):
        del tree["training"][name]
    # Which trained tokenizer it is shows in the data's fingerprint; where its file lies decides nothing.
    tree["run"] = {"tokenizer": "byte" if config.run.tokenizer == "byte" else "trained"}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def same_but_for_length(one: HyMoConfig, other: HyMoConfig) -> bool:
    """Whether two configurations differ at most in total steps or tokens, epochs, and what `config_hash` leaves out."""
    length: dict[str, dict[str, Any]] = {"scheduler": {"total_steps": 1}, "training": {"max_epochs": 1}}
    return config_hash(derive_config(one, **length)) == config_hash(derive_config(other, **length))


def _plain_group(group: Any) -> dict[str, Any]:
    values = {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _find(path_or_preset: str | Path) -> tuple[Path, str | None]:
    path = Path(path_or_preset)
    if path.is_file():
        return path, None
    names = preset_names()
    looks_like_preset = path.suffix in ("", ".yaml", ".yml") and path.stem in names
    if looks_like_preset:
        return _preset(path.stem)
    hint = nearest(path.stem, names)
    raise ConfigError(f"{path_or_preset}: no such file or preset{hint}. Presets: {', '.join(names)}.")


def _preset(name: str) -> tuple[Path, str]:
    """How errors name a packaged preset, and its text."""
    return Path(f"preset {name}"), (resources.files("hymo") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def _read(path: Path, text: str | None, seen: tuple[str, ...]) -> tuple[Tree, dict[tuple[str, ...], str]]:
    """Read one file over its base. Returns the tree and, by (group, key), the place that set it."""
    raw, lines = yaml12.read(path) if text is None else yaml12.parse(text, str(path))
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a configuration is a mapping with the groups {', '.join(GROUPS)}.")
    where: dict[tuple[str, ...], str] = {key: f"{path}:{line}" for key, line in lines.items()}
    base = raw.pop(_BASE, None)
    for group, values in raw.items():
        if group not in GROUPS:
            hint = nearest(group, [*GROUPS, _BASE])
            raise ConfigError(f"{where[(group,)]}: unknown group '{group}'{hint}. Groups: {', '.join(GROUPS)}.")
        if not isinstance(values, dict):
            raise ConfigError(f"{where[(group,)]}: '{group}' must be a mapping of its fields.")
    _check_fields(raw, str(path), where)
    if base is None:
        return raw, where
    if not isinstance(base, str) or base in seen:
        raise ConfigError(f"{where[(_BASE,)]}: base: must name another preset or file, without a cycle.")
    parent = path.parent / base
    try:
        # A preset starts from a preset, whatever lies in the current folder.
        found, parent_text = _find(parent if parent.is_file() else base) if text is None else _preset(base)
    except ConfigError as error:
        raise ConfigError(f"{where[(_BASE,)]}: base: {error}") from None
    tree, parent_where = _read(found, parent_text, (*seen, base))
    where = {**parent_where, **where}
    return _merge(tree, raw, str(path), where), where


def read_override(override: str, option: str = "--set") -> tuple[str, str, Any]:
    """Return group, field and value of a `group.field=value`, the value read as a YAML scalar.

    Raises:
        ConfigError: not of this form, or an unknown group.
    """
    key, equals, text = override.partition("=")
    group, dot, field = key.strip().partition(".")
    if not (equals and dot and group and field):
        raise ConfigError(f"{option} {override}: expected section.field=value, for example training.seed=1.")
    if group not in GROUPS:
        raise ConfigError(f"{option} {override}: unknown group '{group}'{nearest(group, GROUPS)}.")
    value, _ = yaml12.parse(f"value: {text}", f"{option} {override}")
    return group, field, value["value"]


def _merge(tree: Tree, changes: Tree, source: str, where: dict[tuple[str, ...], str]) -> Tree:
    """Lay `changes` over `tree` and recompute what depends on them and is not named by them."""
    _check_fields(changes, source, where)
    merged = {name: dict(values) for name, values in tree.items()}
    for group, values in changes.items():
        merged.setdefault(group, {}).update(values)
    before = tree.get("model", {})
    if before.keys() >= _FOLLOWED:  # else a required field is missing, which is an error of its own
        _follow_model(merged["model"], before, changes.get("model", {}))
    scheduler = changes.get("scheduler", {})
    for given, other in (("total_steps", "total_tokens"), ("total_tokens", "total_steps")):
        if scheduler.get(given) is not None and other not in scheduler and "scheduler" in merged:
            merged["scheduler"].pop(other, None)
    return merged


def _check_fields(tree: Tree, source: str, where: dict[tuple[str, ...], str]) -> None:
    """Check each field against its own type, so that what is computed from it can rely on it.

    Raises:
        ConfigError: an unknown group or field, or a value out of its type or range.
    """
    for group, values in tree.items():
        if group not in GROUPS:
            raise ConfigError(f"{group}: unknown group{nearest(group, GROUPS)}. Groups: {', '.join(GROUPS)}.")
        fields = _fields(group)
        for key, value in values.items():
            place = where.get((group, key), source)
            if key not in fields:
                hint = _nearest_key(str(key), group, list(fields))
                raise ConfigError(f"{place}: unknown key '{group}.{key}'{hint}.")
            try:
                fields[key].validate_python(tuple(value) if isinstance(value, list) else value)
            except ValidationError as error:
                problem = error.errors()[0]
                raise _complaint(problem["msg"], problem["input"], (group, key, *problem["loc"]), place) from None


@cache
def _fields(group: str) -> dict[str, TypeAdapter[Any]]:
    """The fields of a group with what checks one of them alone."""
    hints = get_type_hints(GROUPS[group], include_extras=True)
    return {f.name: TypeAdapter(hints[f.name], config=RULES) for f in dataclasses.fields(GROUPS[group])}


_FOLLOWED = {
    *("dim", "q_lora_rank", "gdn_d_inner", "gdn_headdim", "head_dim", "qk_rope_head_dim", "rope_ratio"),
    *("n_layers", "mla_layers", "mtp_depth", "mtp_loss_weights"),
}
"""Fields without a default that `_follow_model` reads."""


_LOSS_WEIGHTS = (0.3, 0.1)
"""Of the first heads, where a model had none."""


def _follow_model(model: dict[str, Any], before: dict[str, Any], changed: dict[str, Any]) -> None:
    """Recompute the dependent fields of a model whose inputs changed. Every field has its own type and range."""
    if "dim" in changed:
        if "q_lora_rank" not in changed:
            if model["dim"] % 4:
                raise ConfigError(f"model.dim: {model['dim']} is not divisible by 4; name q_lora_rank as well.")
            model["q_lora_rank"] = model["dim"] // 4
        if "gdn_d_inner" not in changed:
            head = model["gdn_headdim"]
            model["gdn_d_inner"] = max(1, round(Fraction(10 * model["dim"], 7 * head))) * head
    if "qk_rope_head_dim" in changed:
        if "rope_ratio" not in changed:
            # At most 1, so that a part wider than the head is reported under the key that was given.
            model["rope_ratio"] = min(1.0, model["qk_rope_head_dim"] / model["head_dim"])
    elif "rope_ratio" in changed or "head_dim" in changed:
        model["qk_rope_head_dim"] = round(model["rope_ratio"] * model["head_dim"])
    if "n_layers" in changed and "mla_layers" not in changed and before["mla_layers"]:
        old = list(before["mla_layers"])
        stride = max(1, old[1] - old[0] if len(old) > 1 else before["n_layers"])
        model["mla_layers"] = list(range(old[0], model["n_layers"], stride))
    if ("n_layers" in changed or "mla_layers" in changed) and "nope_gdn_layers" not in changed:
        kept = [i for i in before.get("nope_gdn_layers", []) if i not in model["mla_layers"]]
        model["nope_gdn_layers"] = [i for i in kept if i < model["n_layers"]]
    if "mtp_depth" in changed and "mtp_loss_weights" not in changed:
        weights, depth = list(before["mtp_loss_weights"]), model["mtp_depth"]
        weights = weights or list(_LOSS_WEIGHTS)
        model["mtp_loss_weights"] = (weights + weights[-1:] * depth)[:depth]


def _build(tree: Tree, source: str, where: dict[tuple[str, ...], str]) -> HyMoConfig:
    missing = [name for name in GROUPS if name not in tree]
    if missing:
        raise ConfigError(
            f"{source}: group '{missing[0]}' is missing. Add it, or start from a preset with 'base: NAME'."
        )
    values = {g: {k: tuple(v) if isinstance(v, list) else v for k, v in tree[g].items()} for g in GROUPS}
    try:
        return HyMoConfig(**{group: cls(**values[group]) for group, cls in _checked(values, source, where)})
    except ValidationError as error:
        raise _explain(error, "", source, where) from None


def _checked(values: Tree, source: str, where: dict[tuple[str, ...], str]) -> Iterable[tuple[str, type]]:
    """Check each group on its own first, so that the error knows its group."""
    for group, cls in GROUPS.items():
        try:
            cls(**values[group])
        except ValidationError as error:
            raise _explain(error, group, source, where) from None
    return GROUPS.items()


def _nearest_key(key: str, group: str, known: list[str]) -> str:
    if difflib.get_close_matches(key, known, n=1, cutoff=0.6):
        return nearest(key, known)
    for other, cls in GROUPS.items():
        if other != group and key in {field.name for field in dataclasses.fields(cls)}:
            return f" (it belongs to '{other}.{key}')"
    return ""


def _explain(error: ValidationError, group: str, source: str, where: dict[tuple[str, ...], str]) -> ConfigError:
    """Turn pydantic's first complaint about fields that are right one by one into place, key and what is wanted."""
    problem = error.errors()[0]
    message = str(problem["msg"]).removeprefix("Value error, ")
    key = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "value_error" and ": " in message:
        key, message = message.split(": ", 1)
        if "." in key:
            group, key = key.split(".", 1)
    place = where.get((group, key), where.get((group,), source))
    if problem["type"] == "missing":
        return ConfigError(f"{place}: '{group}.{key}' is missing. Add it, or start from a preset with 'base: NAME'.")
    return ConfigError(f"{place}: '{group}.{key}': {message[:1].lower() + message[1:]}.")


def _complaint(message: str, value: Any, location: tuple[Any, ...], place: str) -> ConfigError:
    """What is wrong with one field; `location` is its group, its name and, in a list, the index."""
    group, key, *inside = (str(part) for part in location)
    index = f"[{inside[0]}]" if inside and inside[0].isdigit() else ""
    return ConfigError(f"{place}: '{group}.{key}{index}': {message[:1].lower() + message[1:]}, not {value!r}.")
