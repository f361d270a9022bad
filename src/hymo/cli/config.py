"""`hymo config`: presets and resolved configurations."""

from __future__ import annotations

from cyclopts import App

from hymo.cli.options import Json, Overrides
from hymo.cli.output import count, print_json, print_table

app = App(name="config", help="List presets and show resolved configurations.", result_action="return_value")


@app.command(name="list")
def list_presets(*, json: Json = False) -> None:
    """List the packaged presets with their sizes.

    Args:
        json: Write JSON.
    """
    from hymo.core.accounting import count_parameters
    from hymo.core.load import load_config, preset_names

    presets = {name: load_config(name) for name in preset_names()}
    counts = {name: count_parameters(config.model) for name, config in presets.items()}
    order = sorted(presets, key=lambda name: counts[name].stored)
    if json:
        print_json([{"name": n, "stored": counts[n].stored, "active": counts[n].active} for n in order])
        return
    rows = [
        (
            name,
            count(counts[name].stored),
            count(counts[name].active),
            str(presets[name].model.n_layers),
            str(presets[name].model.dim),
            f"{presets[name].model.max_seq_len:,}",
            count(presets[name].total_steps * presets[name].training.tokens_per_step),
        )
        for name in order
    ]
    print_table("presets", ("name", "stored", "active", "layers", "dim", "context", "training tokens"), rows)


@app.command
def show(config: str, /, *, overrides: Overrides = (), json: Json = False) -> None:
    """Print a configuration with everything resolved, as YAML that can be used as a file.

    Args:
        config: Preset or YAML file.
        overrides: Fields to override.
        json: Write JSON.
    """
    import dataclasses

    from hymo.core.load import dump_config, load_config

    resolved = load_config(config, overrides)
    if json:
        print_json(dataclasses.asdict(resolved))
    else:
        print(dump_config(resolved), end="")
