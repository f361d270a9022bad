"""The sample text that ships with the package: SQLite's documentation, public domain (see ``sample/NOTICE``)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from hymo.core.errors import DataError


def sample_paths() -> dict[str, Path]:
    """Return the sample's files: ``{"train": …/train.jsonl, "validation": …/validation.jsonl}``.

    Raises:
        DataError: the package was installed without its data files, or runs from inside an archive.
    """
    folder = resources.files("hymo.data") / "sample"
    paths = {split: Path(str(folder / f"{split}.jsonl")) for split in ("train", "validation")}
    for path in paths.values():
        if not path.is_file():
            raise DataError(f"the sample text is missing ({path}): reinstall hymo from an unpacked wheel")
    return paths
