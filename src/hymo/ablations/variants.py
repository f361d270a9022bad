"""From a base configuration and a family to checked configurations that differ in what the family tests alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hymo.ablations.families import Change, Changes, Family, Spec
from hymo.core.accounting import count_parameters
from hymo.core.config import GROUPS, HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.load import config_hash, derive_config, read_override

BASE = "base"
_STEP = 8
"""Matched widths are multiples of this: the granularity of matrix products."""
_POINTS = 8
"""Validations of a run that a curve asks for."""
_TOLERANCE = 0.02
"""Largest relative difference of active parameters that counts as matched."""


@dataclass(frozen=True)
class Variant:
    """One configuration of a comparison."""

    name: str
    tests: str
    config: HyMoConfig
    overrides: Mapping[str, Any]
    """Every field that differs from the base, resolved: `group.field` to value."""


@dataclass(frozen=True)
class Comparison:
    """A base and what is compared with it."""

    family: Family
    variants: tuple[Variant, ...]
    """The base first."""
    same: Mapping[str, str]
    """Variants of the family that are left out, by the one that they equal."""

    @property
    def base(self) -> Variant:
        """What every other variant is compared with."""
        return self.variants[0]

    @property
    def tests(self) -> dict[str, str]:
        """What each variant tests, by name."""
        return {variant.name: variant.tests for variant in self.variants}


def build(base: HyMoConfig, family: Family, own: Iterable[str] = ()) -> Comparison:
    """Build every variant of a family, and those that the caller names.

    Args:
        base: what variants start from.
        family: the table.
        own: further variants, each as `NAME:group.field=value;group.field=value`.

    Raises:
        ConfigError: a variant that the configuration refuses, named.
        UsageError: a name that is no variant's, or given twice.
    """
    specs = [*family.specs, *map(_own, own)]
    made = [Variant(BASE, "", base, {})]
    seen = {config_hash(base): BASE}
    same: dict[str, str] = {}
    for spec in specs:
        if spec.name == BASE or spec.name in {variant.name for variant in made} | same.keys():
            raise UsageError(f"variant {spec.name}: the name is taken. Give another one.")
        try:
            config = derived(base, spec)
        except ConfigError as error:
            raise ConfigError(f"family {family.key}, variant '{spec.name}': {error}") from None
        key = config_hash(config)
        if key in seen:
            same[spec.name] = seen[key]
            continue
        seen[key] = spec.name
        made.append(Variant(spec.name, spec.tests, config, differences(base, config)))
    if len(made) == 1:
        raise UsageError(
            f"family {family.key}: no variant differs from the base. Name some with --variant NAME:FIELDS."
        )
    return Comparison(family, tuple(made), same)


def cadence(base: HyMoConfig) -> dict[str, Any]:
    """Fields of training that suit a comparison and change no result.

    Validations often enough for a curve but never of more text than is trained on, and no checkpoint at each of them.
    """
    steps, training = base.total_steps, base.training
    text = steps * training.tokens_per_step // (training.eval_sequences * training.seq_len)
    points = min(_POINTS, max(1, text))
    interval = min(training.eval_interval, max(1, -(-steps // points)))
    return {"eval_interval": interval, "keep_best": False, "keep_stable": False, "keep_last": 1}


def differences(base: HyMoConfig, other: HyMoConfig) -> dict[str, Any]:
    """Fields whose values differ, where a run lives aside: `group.field` to the other's value."""
    found = {}
    for group, kind in GROUPS.items():
        if group == "run":
            continue
        for field in dataclasses.fields(kind):
            value = getattr(getattr(other, group), field.name)
            unused = field.name == "nope_gdn_layers" and not other.model.nope_hybrid_gdn_enabled
            if value != getattr(getattr(base, group), field.name) and not unused:
                found[f"{group}.{field.name}"] = list(value) if isinstance(value, tuple) else value
    return found


def matched(config: HyMoConfig, width: str, target: int) -> HyMoConfig:
    """Set `model.width` so that a token uses as nearly `target` parameters as a multiple of eight allows.

    A width that does not take in multiples of eight comes as near as any whole number. Where GDN blocks alone are
    already too many for `gdn_ffn_dim`, they lose heads first.

    Raises:
        ConfigError: the nearest is more than 2 % off.
    """
    if width == "gdn_ffn_dim":
        while _active(config, width, _STEP) > target and config.model.gdn_n_heads > 1:
            config = derive_config(config, model={"gdn_d_inner": config.model.gdn_d_inner - config.model.gdn_headdim})
    for step in (_STEP, 1):
        value = _nearest_width(config, width, target, step)
        found = _active(config, width, value)
        if abs(found - target) <= _TOLERANCE * target:
            return derive_config(config, model={width: value})
    raise ConfigError(f"'model.{width}': no width brings {found:,} active parameters near the base's {target:,}.")


def _nearest_width(config: HyMoConfig, width: str, target: int, step: int) -> int:
    """The multiple of `step` whose count is nearest; the present width if that is as near. Counts grow linearly."""
    first, second = (_active(config, width, n) for n in (_STEP, 2 * _STEP))
    exact = _STEP + (target - first) * _STEP / (second - first) if second != first else _STEP
    candidates = [max(1, round(exact / step)) * step]
    if present := getattr(config.model, width):  # a variant that needs no change gets none
        candidates.insert(0, present)
    return min(candidates, key=lambda n: abs(_active(config, width, n) - target))


def _active(config: HyMoConfig, width: str, value: int) -> int:
    change: dict[str, Any] = {width: value}
    return count_parameters(dataclasses.replace(config.model, **change)).active


def derived(base: HyMoConfig, spec: Spec) -> HyMoConfig:
    """The base with a variant's changes, its width matched where the variant asks for it.

    Raises:
        ConfigError: a configuration that is refused, or no width that meets the base's count.
    """
    config = derive_config(base, **_grouped(_resolved(spec.change, base)))
    return matched(config, spec.match, count_parameters(base.model).active) if spec.match else config


def _resolved(change: Change, base: HyMoConfig) -> Changes:
    return change(base) if callable(change) else change


def _grouped(changes: Changes) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        group, _, field = path.partition(".")
        groups.setdefault(group, {})[field] = value
    return groups


def _own(text: str) -> Spec:
    name, colon, fields = text.partition(":")
    if not (name.strip() and colon and fields.strip()):
        raise UsageError(f"--variant {text}: expected NAME:group.field=value, with ';' between several fields.")
    changes = {}
    for override in filter(None, map(str.strip, fields.split(";"))):
        group, field, value = read_override(override, "--variant")
        changes[f"{group}.{field}"] = value
    return Spec(name.strip(), "given with --variant", changes)
