"""A mixture: named sources with weights, as a YAML file describes them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hymo.core import yaml12
from hymo.core.errors import ConfigError, UsageError, nearest
from hymo.data.filters import CodeFilters, Filters

PRESET = "hymo_mixture"
_TOLERANCE = 1e-6


class Source(BaseModel):
    """One source.

    It comes from a data set of the Hugging Face Hub (`hub`, with `config`, `configs` or `data_dir`), or from local
    files (`local`), which then take the place of the former.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub: str | None = None
    """Repository of the data set, such as HuggingFaceFW/fineweb-edu."""
    config: str | None = None
    """Its configuration."""
    configs: dict[str, float] | None = None
    """Several configurations, each with its share of the source's tokens; shares sum to 1."""
    data_dir: str | None = None
    """Folder of the repository that is read."""
    split: str = "train"
    """Split of the data set that is read."""
    revision: str | None = None
    """Commit of the repository; None: the newest one."""
    columns: bool = False
    """Whether only the named columns are read; for Parquet whose other columns cannot be."""
    local: tuple[Path, ...] = ()
    """Files or folders to read instead; relative to the mixture's file."""
    weight: float = Field(ge=0, le=1)
    """Share of the training tokens."""
    text: str = "text"
    """Field of the text."""
    id: str = "id"
    """Field that names a document."""
    filters: Filters | None = None
    """What is left out."""
    licence: str
    """Terms of the text."""
    gated: bool = False
    """Whether the Hub asks for a login and for terms to be accepted."""
    to_confirm: tuple[str, ...] = ()
    """Facts that were recalled, not checked."""

    @field_validator("local", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> Source:
        if not self.hub and not self.local:
            raise ValueError("needs 'hub' or 'local'")
        if self.config and self.configs:
            raise ValueError("has both 'config' and 'configs'; keep one")
        if self.configs is not None and abs(sum(self.configs.values()) - 1) > _TOLERANCE:
            raise ValueError(f"shares of 'configs' sum to {sum(self.configs.values()):.6g}, not to 1")
        return self

    def parts(self) -> dict[str | None, float]:
        """Return the configurations and their shares."""
        return dict(self.configs.items()) if self.configs else {self.config: 1.0}


class Mixture(BaseModel):
    """Sources and how they are put together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "mixture"
    """What the manifest calls it."""
    train_tokens: int | None = Field(None, ge=1)
    """Training tokens to prepare, unless the command says otherwise."""
    fractions: tuple[float, float, float] = (0.97, 0.015, 0.015)
    """Shares of train, validation and test."""
    validation: str | None = None
    """Source that alone makes the validation split; None: all of them."""
    fallback: str | None = None
    """Source that takes the weight of skipped ones."""
    exhausted: Literal["stop", "reweight", "repeat"] = "reweight"
    """What happens when a source ends early: nothing, the others fill up by weight, or it is shown again."""
    sources: dict[str, Source] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Mixture:
        total = sum(source.weight for source in self.sources.values())
        if abs(total - 1) > _TOLERANCE:
            raise ValueError(f"weights of the sources sum to {total:.6g}, not to 1")
        if min(self.fractions) < 0 or self.fractions[0] == 0 or abs(sum(self.fractions) - 1) > _TOLERANCE:
            raise ValueError("fractions must be three shares that sum to 1, train above 0")
        for role in ("validation", "fallback"):
            name = getattr(self, role)
            if name is not None and name not in self.sources:
                raise ValueError(f"{role}: no source '{name}'{nearest(name, self.sources)}")
        if self.validation is not None and not self.sources[self.validation].weight:
            raise ValueError(f"validation: source '{self.validation}' has weight 0")
        return self


def is_mixture(inputs: Sequence[Path]) -> bool:
    """Whether the inputs of a preparation name a mixture: one YAML file, or the preset."""
    if len(inputs) != 1:
        return False
    (path,) = inputs
    return path.suffix in (".yaml", ".yml") or (str(path) == PRESET and not path.exists())


def load_mixture(path_or_preset: str | Path) -> Mixture:
    """Read a mixture from a YAML file, or the preset of that name.

    Raises:
        ConfigError: with file, line, key, what is expected and the nearest known name.
    """
    path = Path(path_or_preset)
    if not path.is_file() and path.stem == PRESET:
        text = (resources.files("hymo") / "presets" / f"{PRESET}.yaml").read_text(encoding="utf-8")
        tree, lines = yaml12.parse(text, f"preset {PRESET}")
        shown = f"preset {PRESET}"
    elif not path.is_file():
        raise ConfigError(f"{path}: no such file{nearest(path.stem, [PRESET])}. The preset is {PRESET}.")
    else:
        tree, lines = yaml12.read(path)
        shown = str(path)
    if not isinstance(tree, dict):
        raise ConfigError(f"{shown}: a mixture is a mapping with the key 'sources'.")
    _refuse_unknown(tree, lines, shown)
    try:
        mixture = Mixture.model_validate(tree)
    except ValidationError as error:
        raise _explain(error, lines, shown) from None
    folder = path.parent
    sources = {
        name: source.model_copy(update={"local": tuple(folder / local for local in source.local)})
        for name, source in mixture.sources.items()
    }
    return mixture.model_copy(update={"sources": sources})


def with_local(mixture: Mixture, local: Sequence[str]) -> Mixture:
    """Return the mixture with sources read from files, each given as NAME=PATH.

    Raises:
        UsageError: not of that form, or no such source.
    """
    files: dict[str, list[Path]] = {}
    for item in local:
        name, equals, path = item.partition("=")
        if not (equals and name and path):
            raise UsageError(f"--local {item}: expected NAME=PATH")
        if name not in mixture.sources:
            known = ", ".join(mixture.sources)
            raise UsageError(f"--local {item}: no source '{name}'{nearest(name, mixture.sources)}. Sources: {known}.")
        files.setdefault(name, []).append(Path(path))
    changed = {name: mixture.sources[name].model_copy(update={"local": tuple(paths)}) for name, paths in files.items()}
    return mixture.model_copy(update={"sources": {**mixture.sources, **changed}})


def without_gated(mixture: Mixture) -> tuple[Mixture, list[str]]:
    """Return the mixture without gated sources that are not local, and what became of their weights.

    Raises:
        UsageError: the mixture names no fallback, or that is gated itself.
    """
    gated = [name for name, source in mixture.sources.items() if source.gated and not source.local]
    if not gated:
        return mixture, []
    fallback = mixture.fallback
    if fallback is None or fallback in gated:
        raise UsageError(f"mixture {mixture.name}: name an open source as 'fallback' to take the weight of gated ones")
    moved = sum(mixture.sources[name].weight for name in gated)
    sources = {name: source for name, source in mixture.sources.items() if name not in gated}
    kept = sources[fallback]
    sources[fallback] = kept.model_copy(update={"weight": kept.weight + moved})
    note = f"skipped gated sources {', '.join(gated)}: their weight of {moved:.4g} went to {fallback}"
    return mixture.model_copy(update={"sources": sources}), [note]


def _refuse_unknown(tree: dict[str, Any], lines: yaml12.Lines, shown: str) -> None:
    def check(value: Any, model: type[BaseModel], path: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            return
        for key in value:
            if key not in model.model_fields:
                place = f"{shown}:{lines.get((*path, key), 1)}"
                known = list(model.model_fields)
                hint = nearest(key, known) if difflib.get_close_matches(key, known, 1, 0.6) else ""
                raise ConfigError(f"{place}: unknown key '{'.'.join((*path, key))}'{hint}. Keys: {', '.join(known)}.")

    check(tree, Mixture, ())
    sources = tree.get("sources")
    for name, source in sources.items() if isinstance(sources, dict) else ():
        path = ("sources", name)
        check(source, Source, path)
        filters = source.get("filters") if isinstance(source, dict) else None
        check(filters, Filters, (*path, "filters"))
        check(filters.get("code") if isinstance(filters, dict) else None, CodeFilters, (*path, "filters", "code"))


def _explain(error: ValidationError, lines: yaml12.Lines, shown: str) -> ConfigError:
    """Turn pydantic's first complaint into place, key, what was given and what is wanted."""
    problem = error.errors()[0]
    path = tuple(str(part) for part in problem["loc"])
    known = path
    while known and known not in lines:
        known = known[:-1]
    place = f"{shown}:{lines[known]}" if known else shown
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if problem["type"] == "missing":
        return ConfigError(f"{place}: '{'.'.join(path)}' is missing. Add it.")
    given = "" if problem["type"] == "value_error" else f", not {problem['input']!r}"
    return ConfigError(f"{place}: {repr('.'.join(path)) + ': ' if path else ''}{message}{given}.")
