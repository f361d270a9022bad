"""Numbers in pages: each stands between markers that name where it comes from, `<!--=key-->1.13 B<!--/-->`.

`filled` writes them from the code; numbers.py finds every other number in a page's prose. A page may be read as
plain Markdown: the markers are comments there.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml

from docs.tools import claims, sources
from docs.tools.numbers import MARK, TABLE
from docs.tools.paths import DOCS, ROOT, number, page_files, results, short, size
from docs.tools.references import PAGES
from hymo.core.accounting import (
    TensorSpec,
    cache_bytes,
    cache_numbers,
    count_parameters,
    flops_per_token,
    gdn_tensors,
    mla_tensors,
    moe_tensors,
    mtp_tensors,
    state_bytes,
    used_per_token,
)
from hymo.core.config import HyMoConfig
from hymo.core.hardware import device
from hymo.core.load import derive_config, load_config, preset_names
from hymo.core.memory import optimizer_sizes, training_memory
from hymo.core.planner import plan
from hymo.inference.packaged import packaged_folder
from hymo.training.normuon import newton_schulz
from hymo.training.scheduler import JointWSDScheduler

_SHORTHAND = re.compile(r"\{\{([^{}\n]+)\}\}")
_PLANNED = re.compile(r"^hymo plan (\S+) --gpu (\S+) --gpus (\d+) --price (\S+)$", re.MULTILINE)
_LONG_CONTEXT = 32_768


def pages() -> Iterator[Path]:
    """Pages written by hand: every number in them is a value, or has its reason in docs/data/numbers.yaml."""
    generated = {DOCS / name for name in (*PAGES, *claims.PAGES)}
    yield from (DOCS / page for page in page_files() if DOCS / page not in generated)


def filled(text: str, facts: dict[str, str], page: str) -> str:
    """The page with the value of every key and every table written anew.

    Raises:
        SystemExit: a key that is no fact.
    """

    def value(match: re.Match[str]) -> str:
        found = facts.get(match[1])
        try:
            found = sources.value(match[1]) if found is None else found
        except (LookupError, AttributeError, ImportError, ValueError, OSError) as error:
            raise SystemExit(f"{page}: {match[1]}: {error}") from error
        if found is None:
            raise SystemExit(f"{page}: {match[1]} is no fact. Add it to docs/tools/values.py or sources.py.")
        return f"<!--={match[1]}-->{found}<!--/-->"

    def table(match: re.Match[str]) -> str:
        if match[1] not in sources.TABLES:
            raise SystemExit(f"{page}: {match[1]} is no table. Add it to docs/tools/sources.py.")
        return f"<!--table {match[1]}-->\n{sources.TABLES[match[1]]()}\n<!--/table-->"

    pieces = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    for i in range(0, len(pieces), 2):
        marked = _SHORTHAND.sub(r"<!--=\1--><!--/-->", pieces[i])
        pieces[i] = TABLE.sub(table, MARK.sub(value, marked))
    return "".join(pieces)


def _total(tensors: list[TensorSpec]) -> int:
    return sum(tensor.numel for tensor in tensors)


def facts() -> dict[str, str]:
    """Every value that a page may show."""
    flagship = load_config("hymo_750m")
    m, t = flagship.model, flagship.training
    count = count_parameters(m)
    found: dict[str, str] = {}
    for name in preset_names():
        config = load_config(name)
        sizes = count_parameters(config.model)
        found |= {f"{name}.stored": short(sizes.stored), f"{name}.active": short(sizes.active)}
        found |= {f"{name}.steps": number(config.total_steps), f"{name}.context": number(config.model.max_seq_len)}
        found[f"{name}.tokens"] = short(config.total_steps * config.training.tokens_per_step)
    for field in ("n_layers", "dim", "vocab_size", "max_seq_len", "n_heads", "n_kv_groups", "head_dim", "v_head_dim"):
        found[f"m.{field}"] = number(getattr(m, field))
    for field in ("qk_rope_head_dim", "qk_nope_head_dim", "q_lora_rank", "kv_lora_rank", "gdn_d_inner", "gdn_d_state"):
        found[f"m.{field}"] = number(getattr(m, field))
    for field in ("gdn_headdim", "gdn_n_heads", "gdn_d_conv", "gdn_chunk_size", "n_routed_experts", "n_shared_experts"):
        found[f"m.{field}"] = number(getattr(m, field))
    for field in ("n_activated_experts", "moe_inter_dim", "mtp_depth", "logit_softcap", "rope_theta"):
        found[f"m.{field}"] = number(getattr(m, field))
    for field in ("moe_ema_alpha", "moe_bias_speed", "init_std", "rope_ratio"):
        found[f"m.{field}"] = f"{getattr(m, field):g}"
    found["m.n_mla"], found["m.n_gdn"] = number(len(m.mla_layers)), number(len(m.gdn_layers))
    found["m.mtp_weights"] = " and ".join(f"{w:g}" for w in m.mtp_loss_weights)
    found["m.dead_band"] = f"{m.moe_dead_band:.0%}"
    found["stored"], found["active"] = number(count.stored), number(count.active)
    found["active share"] = f"{count.active / count.stored:.0%}"
    for part, n in count.parts.items():
        found[f"part.{part}"] = number(n)
        found[f"share.{part}"] = f"{n / count.stored:.1%}"
    blocks = {"gdn": gdn_tensors(m), "mla": mla_tensors(m), "moe": moe_tensors(m), "mtp": mtp_tensors(m)}
    for name, tensors in blocks.items():
        found[f"block.{name}"] = number(_total(tensors))
    found["used"], found["served"] = number(used_per_token(m, True)), number(used_per_token(m, False))
    found["flops"] = f"{flops_per_token(m, t.seq_len) / 1e9:.2f} GFLOP"
    plain = {"mha": m.n_heads, "gqa": m.n_kv_groups, "mqa": 1}
    numbers = {
        key: cache_numbers(derive_config(flagship, model={"mla_latent": False, "n_kv_groups": groups}).model)
        for key, groups in plain.items()
    } | {"mla": cache_numbers(m)}
    for key, n in numbers.items():
        found[f"cache.{key}.numbers"] = number(n)
        found[f"cache.{key}.ratio"] = f"{n / numbers['mla']:g}"
        found[f"cache.{key}.full"] = size(2 * n * m.n_layers * _LONG_CONTEXT)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found["python"] = project["requires-python"].removeprefix(">=")
    found["long"] = number(_LONG_CONTEXT)
    found["cache.hymo"] = size(cache_bytes(m, _LONG_CONTEXT))
    found["cache.context"] = size(cache_bytes(m, m.max_seq_len))
    found["state"] = size(state_bytes(m))
    found["hymo against mha"] = f"{2 * numbers['mha'] * m.n_layers * _LONG_CONTEXT / cache_bytes(m, _LONG_CONTEXT):.0f}"
    found["tokens per step"], found["steps"] = number(t.tokens_per_step), number(flagship.total_steps)
    o, s = flagship.optimizer, flagship.scheduler
    found |= {"muon lr": f"{o.muon_lr:g}", "adamw lr": f"{o.adamw_lr:g}", "lr ratio": f"{o.muon_lr / o.adamw_lr:.1f}"}
    found |= {"ns steps": number(o.ns_steps), "clip": f"{t.grad_clip:g}", "warn": f"{t.grad_norm_warn:g}"}
    found |= {"min lr": f"{s.min_lr_ratio:g}", "decay eps": f"{o.decay_group_eps:g}", "adamw eps": f"{o.adamw_eps:g}"}
    schedule = JointWSDScheduler.from_config((), s, flagship.total_steps)
    found |= {"warmup": number(schedule.warmup_steps), "stable": number(schedule.stable_steps)}
    found["decay"] = number(schedule.decay_steps)
    sizes_o = optimizer_sizes(flagship)
    found |= {"normuon elements": number(sizes_o.normuon), "adamw elements": number(sizes_o.adamw)}
    for level in ("none", "selective", "full"):
        found[f"memory.{level}"] = size(training_memory(flagship, 1, None, level, on_gpu=True).total)
    for gpus in (1, 4):
        items = training_memory(flagship, gpus, on_gpu=True)
        found[f"states.{gpus}"] = size(items.masters + items.gradients + items.normuon + items.adamw)
    made = plan(flagship, "h200", 1, None, None)
    assert made.throughput is not None
    found["plan.tok"], found["plan.days"] = short(made.throughput.tokens_per_second), f"{made.throughput.days:.1f}"
    found["plan.basis"] = made.throughput.basis
    found["comm"] = size(plan(flagship, "h200", 4, None, None).communication_bytes)
    return found | _operation() | _measured() | _worked(flagship)


def _measured() -> dict[str, str]:
    """What tables of docs/data.md were measured on, and single figures of other guides."""
    prepared, loaded = results("prepare-cpu"), results("loader-cpu")
    assert prepared is not None
    assert loaded is not None
    rows = prepared["rows"]
    suite = yaml.safe_load((ROOT / "src/hymo/evaluation/suites/design.yaml").read_text(encoding="utf-8"))
    return {
        "prepare.bytes": f"{rows[0]['bytes'] / 1e6:.0f} MB",
        "prepare.repeat": number(sum(row["workers"] == rows[0]["workers"] for row in rows)),
        "loader.tokens": f"{loaded['environment']['tokens'] / 1e6:.0f} M",
        "packaged.parameters": short(count_parameters(load_config(packaged_folder() / "config.yaml").model).stored),
        "packaged.size": f"{sum(path.stat().st_size for path in packaged_folder().iterdir()) / 1e6:.1f} MB",
        "owners.spread": f"{claims.imbalance():.1%}",
        "owners.ranks": ", ".join(map(str, claims.RANKS[:-1])) + f" and {claims.RANKS[-1]}",
        "suite.confidence": f"{suite['confidence']:.0%}",
    }


def _operation() -> dict[str, str]:
    """What the plans of docs/operate.md say, by device and number."""
    found = {}
    for name, gpu, gpus, price in _PLANNED.findall((DOCS / "operate.md").read_text(encoding="utf-8")):
        made = plan(load_config(name), gpu, int(gpus), None, float(price))
        speed = made.throughput
        assert speed is not None
        assert speed.cost is not None
        key = f"op.{gpu}x{gpus}"
        found[f"{key}.name"] = f"{gpus} x {device(gpu).name.removeprefix('NVIDIA ')}"
        found |= {f"{key}.price": f"{float(price):g}", f"{key}.tok": short(speed.tokens_per_second)}
        found |= {f"{key}.days": f"{speed.days:.1f}", f"{key}.cost": f"{speed.cost:,.0f}"}
        found[f"{key}.disk"] = f"{size(made.checkpoint_disk_bytes)} and {size(made.data_bytes)}"
        found |= {f"{key}.lost": f"{speed.lost_hours:.2f} h, for {speed.lost_cost:,.0f}", "op.basis": speed.basis}
    return found


def _worked(flagship: HyMoConfig) -> dict[str, str]:
    """Figures of the worked examples, by the package's own functions."""
    m = flagship.model
    found = {"initial loss": f"{math.log(m.vocab_size) + m.dim * m.init_std**2 / 2:.2f}"}
    found["initial bits"] = f"{(math.log(m.vocab_size) + m.dim * m.init_std**2 / 2) / math.log(2):.2f}"
    found["byte.uniform"] = number(2**8)
    found["residual scale"] = f"{1 / math.sqrt(2 * m.n_layers):g}"
    found["ln V"] = f"{math.log(m.vocab_size):.2f}"
    heads = m.gdn_n_heads
    rates = [1 + 39 * i / (heads - 1) for i in range(heads)]
    found |= {"rate.first": f"{rates[0]:g}", "rate.last": f"{rates[-1]:g}"}
    found |= {"keep.first": f"{math.exp(-rates[0] / 2):.3f}", "keep.last": f"{math.exp(-rates[-1] / 2):.1e}"}
    found |= {"life.first": f"{2 / rates[0]:.0f}", "life.last": f"{2 / rates[-1]:.2f}"}
    from hymo.kernels import gated_delta, gated_linear

    one = torch.float64
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=one)[None, :, None]
    values = torch.tensor([[2.0], [5.0], [3.0]], dtype=one)[None, :, None]
    gate = torch.full((1, 3, 1), 1.0, dtype=one)
    log_alpha = torch.full((1, 3, 1), math.log(0.9), dtype=one)
    rate = torch.full((1, 2), -math.log(0.9), dtype=one).log()
    o, final = gated_linear(values, keys, keys, gate, rate, None, None, True, "recurrent")
    d, after = gated_delta(keys, keys, values, gate, log_alpha, None, None, True, "recurrent")
    assert final is not None
    assert after is not None
    found |= {f"gl.o{i}": f"{float(o[0, i, 0, 0]):g}" for i in range(3)}
    found |= {f"gd.o{i}": f"{float(d[0, i, 0, 0]):g}" for i in range(3)}
    found |= {"gl.other": f"{float(final[0, 0, 1, 0]):g}", "gd.other": f"{float(after[0, 0, 1, 0]):g}"}
    from hymo.models.moe import DeepSeekMoE

    tiny = derive_config(load_config("hymo_tiny"), model={"n_routed_experts": 4, "dim": 4, "moe_inter_dim": 2})
    moe = DeepSeekMoE(tiny.model, 0)
    with torch.no_grad():
        moe.router.copy_(torch.eye(4))
    moe.requires_grad_(False)
    logits = torch.tensor([[1.0, 0.5, 0.4, -1.0]])
    chosen, weights, scores = moe.route(logits)
    found |= {f"route.s{i}": f"{float(scores[0, i]):.3f}" for i in range(4)}
    found |= {f"route.w{i}": f"{float(weights[0, i]):.3f}" for i in range(2)}
    with torch.no_grad():
        moe.bias.copy_(torch.tensor([0.0, -0.05, 0.05, 0.0]))
    chosen, weights, _ = moe.route(logits)
    order = chosen[0].argsort()
    found |= {f"biased.w{i}": f"{float(weights[0, order[i]]):.3f}" for i in range(2)}
    matrix = torch.diag(torch.tensor([1.0, 0.1, 0.01], dtype=one))
    for steps in (1, 3, 5):
        singular = torch.linalg.svdvals(newton_schulz(matrix, steps, "polar_express", one)).flip(0)
        found[f"ns.{steps}"] = ", ".join(f"{float(x):.3f}" for x in singular)
    half = m.qk_rope_head_dim // 2
    found |= {"rope.pairs": number(half), "rope.fastest": f"{2 * math.pi:.1f}"}
    found["rope.slowest"] = number(2 * math.pi * m.rope_theta ** ((half - 1) / half))
    found["mtp.expected"] = f"{1 + 0.7 + 0.7 * 0.6:.2f}"
    share = (m.vocab_size * m.dim + _total(mtp_tensors(m))) / used_per_token(m, False)
    found["mtp.head share"] = f"{share:.0%}"
    return found
