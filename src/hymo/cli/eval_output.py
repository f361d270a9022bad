"""Where the figures of `hymo eval` are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hymo.cli.output import finite, log


def keep(
    checkpoint: Path | None,
    out: Path | None,
    name: str,
    options: Mapping[str, object],
    facts: Mapping[str, object],
    markdown: str | None = None,
) -> None:
    """Write figures to NAME.json (and .md), with the options that are given in the name.

    They go into `out`, or into eval/ of the run that the checkpoint belongs to, or nowhere. The run's folder may be
    read-only: that costs only the file. A folder that was asked for must be writable.
    """
    from hymo.core.errors import HymoError
    from hymo.core.files import write_text, writing
    from hymo.data.of_run import run_of

    run = None if out is not None or checkpoint is None else run_of(checkpoint)
    folder = out if out is not None else run / "eval" if run is not None else None
    if folder is None:
        return
    stem = name + "".join(f"-{key}-{value}" for key, value in options.items() if value is not None)
    try:
        with writing(folder):
            folder.mkdir(exist_ok=True, parents=out is not None)
        write_text(folder / f"{stem}.json", json.dumps(finite(facts), indent=1, allow_nan=False) + "\n")
        if markdown is not None:
            write_text(folder / f"{stem}.md", markdown)
    except HymoError as error:
        if out is not None:
            raise
        log(f"warning: {error}")
