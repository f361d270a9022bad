"""Static figures: what a lab shows without JavaScript and in print, computed by the package and drawn as SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from html import escape
from unittest import mock

import torch
from rich.cells import cell_len
from rich.console import Console

from docs.tools.paths import DOCS, number, size
from hymo.core.accounting import cache_bytes, cache_numbers
from hymo.core.load import derive_config, load_config
from hymo.core.memory import LEVELS, training_memory
from hymo.core.planner import plan
from hymo.kernels import gated_delta, gated_linear
from hymo.models.moe import DeepSeekMoE
from hymo.training.dashboard import dashboard
from hymo.training.follow import RunFollower

_INK, _SOFT, _PAPER, _LINE = "#1f2430", "#5b6472", "#fbfaf6", "#d9d6cc"
_GDN, _MLA, _WARM, _COOL = "#0f766e", "#b45309", "#b45309", "#0f766e"
_FONT = "font-family='IBM Plex Sans, system-ui, sans-serif'"


def _svg(width: int, height: int, title: str, body: list[str]) -> str:
    frame = f"<rect width='{width}' height='{height}' rx='8' fill='{_PAPER}'/>"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'><title>{title}</title>"
    return "\n".join([head, frame, *body, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, size_px: int = 12, colour: str = _INK, anchor: str = "start") -> str:
    look = f"{_FONT} font-size='{size_px}' fill='{colour}' text-anchor='{anchor}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {look}>{text}</text>"


def _bar(x: float, y: float, w: float, h: float, colour: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(w, 0.5):.1f}' height='{h:.1f}' rx='2' fill='{colour}'/>"


def stack() -> str:
    """The flagship's blocks in order: circles are GDN, squares are MLA with experts."""
    model = load_config("hymo_750m").model
    body, columns = [], 8
    for layer in range(model.n_layers):
        x, y = 40 + 80 * (layer % columns), 46 + 62 * (layer // columns)
        if layer in model.mla_layers:
            body.append(f"<rect x='{x - 18}' y='{y - 18}' width='36' height='36' rx='4' fill='{_MLA}'/>")
        else:
            body.append(f"<circle cx='{x}' cy='{y}' r='18' fill='{_GDN}'/>")
        body.append(_text(x, y + 4, str(layer), 12, "#ffffff", "middle"))
    rows = math.ceil(model.n_layers / columns)
    return _svg(640, 62 * rows + 40, "The blocks of hymo_750m: squares are MLA with experts, circles are GDN", body)


def recurrence() -> str:
    """Two rules on the same writes: the state after a key was written twice."""
    keys = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 0, 3]][None, :, None]
    values = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 3, 1]][None, :, None]
    gate = torch.ones(1, 5, 1, dtype=torch.float64)
    rate = -math.log(0.95)
    _, linear = gated_linear(
        values, keys, keys, gate, torch.full((1, 4), math.log(rate)).double(), None, None, True, "recurrent"
    )
    _, delta = gated_delta(keys, keys, values, gate, -rate * gate, None, None, True, "recurrent")
    assert linear is not None
    assert delta is not None
    body = []
    for column, (name, state) in enumerate((("gated linear: adds", linear), ("gated delta: overwrites", delta))):
        left = 40 + 300 * column
        body.append(_text(left, 30, name, 14))
        for s in range(4):
            for d in range(4):
                value = float(state[0, 0, s, d])
                x, y = left + 56 * d, 44 + 44 * s
                body.append(
                    f"<rect x='{x}' y='{y}' width='52' height='40' rx='3' fill='{_COOL}' "
                    f"fill-opacity='{abs(value):.3f}' stroke='{_LINE}'/>"
                )
                body.append(_text(x + 26, y + 25, f"{value:.2f}", 12, "#ffffff" if value > 0.6 else _INK, "middle"))
    return _svg(600, 236, "State after five writes, the first key written twice", body)


def router() -> str:
    """Loads of the experts before and after the bias has balanced a skewed router."""
    base = load_config("hymo_tiny")
    experts = load_config("hymo_750m").model.n_routed_experts
    config = derive_config(base, model={"n_routed_experts": experts, "dim": experts, "moe_inter_dim": 2})
    moe = DeepSeekMoE(config.model, 0)
    with torch.no_grad():
        moe.router.copy_(torch.eye(experts))
    generator = torch.Generator().manual_seed(1)
    skew = torch.linspace(0.8, -0.8, experts)

    def load() -> torch.Tensor:
        logits = torch.randn(512, experts, generator=generator) + skew
        return torch.bincount(moe.route(logits)[0].flatten(), minlength=experts)

    first = load()
    for _ in range(600):
        moe.tokens_per_expert += load()
        moe.update_gate_bias()
    body = []
    last = load()
    uniform, top = int(first.sum()) / experts, float(max(first.max(), last.max()))
    for row, (name, counts) in enumerate((("before", first), ("after 600 steps of the bias", last))):
        base_y = 130 + 140 * row
        body.append(_text(40, base_y - 96, name, 14))
        for i, n in enumerate(counts.tolist()):
            body.append(
                _bar(40 + 35 * i, base_y - 84 * n / top, 28, 84 * n / top, _WARM if n > 1.25 * uniform else _COOL)
            )
        y = base_y - 84 * uniform / top
        body.append(f"<line x1='36' x2='604' y1='{y:.1f}' y2='{y:.1f}' stroke='{_INK}' stroke-dasharray='4 3'/>")
    return _svg(640, 300, "Tokens per expert before and after balancing; the dashed line is the uniform load", body)


def cache() -> str:
    """Cache of one sequence under five designs."""
    flagship = load_config("hymo_750m")
    m = flagship.model
    context = 32_768
    rows = []
    for name, groups in (("MHA, every layer", m.n_heads), ("GQA, every layer", m.n_kv_groups), ("MQA, every layer", 1)):
        other = derive_config(flagship, model={"mla_latent": False, "n_kv_groups": groups}).model
        rows.append((name, 2 * cache_numbers(other) * m.n_layers * context))
    rows.append(("MLA, every layer", 2 * cache_numbers(m) * m.n_layers * context))
    rows.append(("HyMo, as in the preset", cache_bytes(m, context)))
    return _bars(f"Attention cache at {number(context)} tokens, bfloat16", [(n, v, size(v)) for n, v in rows])


def _bars(title: str, rows: list[tuple[str, float, str]]) -> str:
    top = max(value for _, value, _ in rows)
    body = [_text(24, 32, title, 14)]
    for i, (name, value, shown) in enumerate(rows):
        y = 52 + 38 * i
        body += [
            _text(24, y + 18, name, 13),
            _bar(210, y + 4, 320 * value / top, 20, _MLA if i == len(rows) - 1 else _COOL),
        ]
        body.append(_text(218 + 320 * value / top, y + 19, shown, 12, _SOFT))
    return _svg(640, 64 + 38 * len(rows), title, body)


def speculation() -> str:
    """Expected tokens per pass by acceptance of the drafts."""
    rows = []
    for percent in (0, 25, 50, 75, 100):
        a = percent / 100
        expected = 1 + a + a * a
        rows.append((f"acceptance {percent} %", expected, f"{expected:.2f}"))
    return _bars("Tokens per pass of the model with two drafts", rows)


def step() -> str:
    """What the flagship's training step occupies at each level of recomputation."""
    config = load_config("hymo_750m")
    rows = [
        (f"checkpointing {level}", (total := training_memory(config, 1, None, level, on_gpu=True).total), size(total))
        for level in LEVELS
    ]
    return _bars("Memory of a training step on one device, estimated", [(a, float(b), c) for a, b, c in rows])


def planner() -> str:
    """Days of the flagship's run by device count, as planned."""
    rows = []
    for gpus in (1, 2, 4, 8):
        made = plan(load_config("hymo_750m"), "h200", gpus)
        assert made.throughput is not None
        rows.append((f"{gpus} x H200", made.throughput.days, f"{made.throughput.days:.1f} days"))
    return _bars("Planned time for all tokens, at the assumed utilisation", rows)


def watch() -> str:
    """The screen of `hymo watch` at one moment of a run of two ranks, whose records lie in docs/data/watch."""
    follower = RunFollower(DOCS / "data" / "watch")
    follower.poll()
    # The moment of the last record, so that every run of this draws the same.
    with mock.patch("time.time", return_value=float(follower.train["ts"])):
        follower.poll()
        console = Console(width=104, color_system="truecolor", force_terminal=True, file=io.StringIO())
        lines = console.render_lines(dashboard(follower, console.width, price=2.0), pad=False)
    colours = {"cyan": "#7dd3d8", "green": "#8fd694", "red": "#ff8a80", "yellow": "#f2d06b", "magenta": "#d7a8ff"}
    body, step, left = [], 7.3, 14
    for row, line in enumerate(lines):
        column, spans = 0, []
        for text, style, *_ in line:
            if text.strip():
                name = "" if style is None or style.color is None else str(style.color.name)
                shade = colours.get(name, "#9aa4b2" if style is not None and style.dim else "#e6e9ef")
                x, width = left + step * column, step * cell_len(text)
                spans.append(f"<tspan x='{x:.1f}' textLength='{width:.1f}' fill='{shade}'>{escape(text)}</tspan>")
            column += cell_len(text)
        look = "font-family='IBM Plex Mono, ui-monospace, monospace' font-size='12' xml:space='preserve'"
        body.append(f"<text y='{26 + 16 * row}' {look}>{''.join(spans)}</text>")
    width, height = round(2 * left + step * console.width), 24 + 16 * len(lines)
    screen = f"<rect width='{width}' height='{height}' rx='8' fill='#1f2430'/>"
    return _svg(width, height, "hymo watch on a run of two ranks", [screen, *body])


FIGURES: dict[str, Callable[[], str]] = {
    "assets/figures/stack.svg": stack,
    "assets/figures/gdn.svg": recurrence,
    "assets/figures/moe.svg": router,
    "assets/figures/cache.svg": cache,
    "assets/figures/mtp.svg": speculation,
    "assets/figures/step.svg": step,
    "assets/figures/planner.svg": planner,
    "assets/figures/watch.svg": watch,
}
"""Every figure, below docs/."""
