"""`hymo doctor`: what is installed, and which fast paths are on."""

from __future__ import annotations

from hymo.cli.options import Json
from hymo.cli.output import print_json, print_table


def doctor(*, json: Json = False) -> None:
    """Say what is installed, which fast paths are on, and why the others are not.

    Args:
        json: Write JSON.
    """
    from hymo.training.doctor import diagnose

    found = diagnose()
    if json:
        print_json(found.to_dict())
        return
    facts = [*found.versions.items(), *(tuple(device.split(": ", 1)) for device in found.devices)]
    facts += [(f"{name} threads" if name != "cpus" else name, str(n)) for name, n in found.threads.items()]
    sections = (
        ("here", facts),
        ("fast paths", [(p.name, f"{'on' if p.on else 'off'}: {p.reason}") for p in found.fast_paths]),
        ("optional packages", [(e.name, f"{e.version or 'not installed'}: {e.enables}") for e in found.extras]),
    )
    for title, rows in sections:
        print_table(title, ("item", "state"), rows, left=(0, 1))
