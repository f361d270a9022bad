"""A strict reader for the YAML 1.2 core schema that remembers lines.

YAML 1.1, PyYAML's default, reads `3e-4` as a string, `no` as false and keeps the last of two equal keys. Configuration
files must not depend on such luck.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from hymo.core.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema's scalars instead of YAML 1.1's."""


_SCALARS = {
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|", "~nN\0"),
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class Dumper(yaml.SafeDumper):
    """Writes what the loader reads back as the same value: one key a line, lists in line."""


_Loader.yaml_implicit_resolvers = {}
Dumper.yaml_implicit_resolvers = {}
for _tag, (_pattern, _first) in _SCALARS.items():
    for _cls in (_Loader, Dumper):
        _cls.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first])


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _floating(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).lower().replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _floating)


def _represent_list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


Dumper.add_representer(list, _represent_list)

Lines = dict[tuple[str, ...], int]


def parse(text: str, source: str) -> tuple[Any, Lines]:
    """Parse one YAML document.

    Args:
        text: the document.
        source: the name that errors show, usually a path.

    Returns:
        The plain value, and the 1-based line of every mapping key by its path.

    Raises:
        ConfigError: bad syntax, a duplicate or non-string key, an anchor cycle or an unknown tag.
    """
    lines: Lines = {}
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return {}, lines
        _index(node, (), lines, source)
        return loader.construct_document(node), lines
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{source}:{line}: not valid YAML: {error.reason}. Remove them.") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark is not None else source
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"{where}: not valid YAML: {problem}. Fix the syntax there.") from None
    finally:
        if loader is not None:
            loader.dispose()


def read(path: Path) -> tuple[Any, Lines]:
    """Parse the file at `path`; errors as in `parse`, or a ConfigError for a file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}. Check the path and its permissions.") from None
    return parse(text, str(path))


def _index(node: yaml.Node, path: tuple[str, ...], lines: Lines, source: str) -> None:
    """Record the line of each key below `node` and refuse duplicates."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not (isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:str"):
            raise ConfigError(f"{source}:{line}: a key must be a plain name. Rename it.")
        here = (*path, key.value)
        if here in lines:
            raise ConfigError(
                f"{source}:{line}: duplicate key '{'.'.join(here)}', first given in line {lines[here]}. Keep one."
            )
        lines[here] = line
        _index(value, here, lines, source)
