"""Golden vectors for the labs' mathematics, computed by the package, and the data that the labs read in the page.

Vectors lie in `docs/labs/golden` and are read by vitest; data lie in `docs/assets/data` and are fetched by the labs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hymo.core.accounting import (
    attention_flops,
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
from hymo.core.errors import UsageError
from hymo.core.hardware import DEVICES
from hymo.core.load import derive_config, load_config, preset_names
from hymo.core.measured import MEASURED
from hymo.core.memory import LEVELS, LOGIT_CHUNK_ELEMENTS
from hymo.core.planner import USABLE_MEMORY, plan
from hymo.core.roles import NORMUON_ROLES
from hymo.data import sample_paths
from hymo.inference.drafting import Speculation
from hymo.inference.sampling import draw
from hymo.kernels import gated_delta, gated_linear
from hymo.models.moe import DeepSeekMoE
from hymo.training.normuon import _POLYNOMIALS, newton_schulz
from hymo.training.scheduler import JointWSDScheduler

SYMBOLS = "abcdefghijklmnopqrstuvwxyz "
"""Alphabet of the speculation lab's little text model: lower-case letters and the space."""


def _numbers(x: Tensor) -> Any:
    return x.tolist()


def recurrence_vectors() -> list[dict[str, Any]]:
    """Both rules on one head with outputs and final state, from the time loop in fp64."""
    generator = torch.Generator().manual_seed(7)
    cases = []
    for length, keys, values, rate in ((1, 2, 3, 0.5), (7, 4, 4, 3.0), (16, 4, 4, 0.05), (19, 6, 5, 40.0)):
        v, b, c = (torch.randn(1, length, 1, n, generator=generator, dtype=torch.float64) for n in (values, keys, keys))
        gate = torch.rand(1, length, 1, generator=generator, dtype=torch.float64)
        A_log = torch.log(rate * (0.5 + torch.rand(1, keys, generator=generator, dtype=torch.float64)))
        start = torch.randn(1, 1, keys, values, generator=generator, dtype=torch.float64)
        o, final = gated_linear(v, b, c, gate, A_log, start, None, True, "recurrent")
        assert final is not None
        linear = {"o": _numbers(o[0, :, 0]), "final": _numbers(final[0, 0])}
        k = torch.nn.functional.normalize(b, dim=-1)
        beta = torch.rand(1, length, 1, generator=generator, dtype=torch.float64)
        log_alpha = -rate * 0.1 * gate
        o, final = gated_delta(c, k, v, beta, log_alpha, start, None, True, "recurrent")
        assert final is not None
        delta = {"o": _numbers(o[0, :, 0]), "final": _numbers(final[0, 0])}
        inputs = {"v": v, "b": b, "c": c, "k": k}
        cases.append(
            {name: _numbers(x[0, :, 0]) for name, x in inputs.items()}
            | {"g": _numbers(gate[0, :, 0]), "beta": _numbers(beta[0, :, 0]), "logAlpha": _numbers(log_alpha[0, :, 0])}
            | {"A": _numbers(A_log[0].exp()), "start": _numbers(start[0, 0]), "linear": linear, "delta": delta}
        )
    return cases


def router_vectors() -> dict[str, Any]:
    """Choices and weights for given logits, and biases over steps for given counts, from the package's own module."""
    generator = torch.Generator().manual_seed(3)
    base = load_config("hymo_tiny")
    experts = load_config("hymo_750m").model.n_routed_experts
    routes, balances = [], []
    for score in ("sigmoid", "softmax"):
        config = derive_config(
            base, model={"router_score": score, "n_routed_experts": experts, "dim": experts, "moe_inter_dim": 2}
        )
        moe = DeepSeekMoE(config.model, 0)
        with torch.no_grad():
            moe.router.copy_(torch.eye(experts))  # so that a token is its logits
            moe.bias.copy_(0.2 * torch.randn(experts, generator=generator))
        logits = torch.randn(24, experts, generator=generator)
        chosen, weights, scores = moe.route(logits)
        routes.append(
            {"score": score, "k": config.model.n_activated_experts, "scale": config.model.route_scale}
            | {"bias": _numbers(moe.bias), "logits": _numbers(logits)}
            | {"chosen": _numbers(chosen), "weights": _numbers(weights), "scores": _numbers(scores)}
        )
    for update in ("ema", "sign"):
        config = derive_config(base, model={"moe_bias_update": update, "n_routed_experts": experts})
        moe = DeepSeekMoE(config.model, 0)
        steps = []
        for step in range(40):
            counts = torch.randint(0, 60, (experts,), generator=generator) * (torch.arange(experts) + 1 + step % 3)
            moe.tokens_per_expert += counts
            moe.update_gate_bias()
            steps.append({"counts": _numbers(counts), "bias": _numbers(moe.bias), "ema": _numbers(moe.load_ema)})
        model = config.model
        rule = {
            "update": update,
            "alpha": model.moe_ema_alpha,
            "speed": model.moe_bias_speed,
            "band": model.moe_dead_band,
        }
        balances.append(rule | {"steps": steps})
    return {"routes": routes, "balances": balances}


def _variants() -> dict[str, HyMoConfig]:
    flagship = load_config("hymo_750m")
    model = flagship.model
    groups = {"mha": model.n_heads, "gqa": model.n_kv_groups, "mqa": 1}
    found = {name: load_config(name) for name in preset_names()}
    for name, count in groups.items():
        found[f"plain {name}"] = derive_config(flagship, model={"mla_latent": False, "n_kv_groups": count})
    found["delta"] = derive_config(flagship, model={"gdn_recurrence": "gated_delta"})
    found["delta as written"] = derive_config(found["delta"], training={"torch_compile_gdn": False})
    found["norm"] = derive_config(flagship, model={"gdn_output_norm": True, "gdn_rope_target": "v"})
    found["dense"] = derive_config(flagship, model={"moe_placement": "none", "gdn_ffn_dim": 512, "gdn_gate": "none"})
    recomputed = {"activation_checkpointing": "selective"}
    found["dense, recomputed"] = derive_config(flagship, model={"moe_placement": "none"}, training=recomputed)
    found["all moe, recomputed"] = derive_config(flagship, model={"moe_placement": "all"}, training=recomputed)
    found["all moe"] = derive_config(flagship, model={"moe_placement": "all"})
    found["untied"] = derive_config(flagship, model={"tie_embeddings": False, "n_shared_experts": 0})
    found["adamw"] = derive_config(flagship, optimizer={"optimizer_partition": "adamw"})
    found["normuon all"] = derive_config(flagship, optimizer={"optimizer_partition": "normuon_all"})
    found["recurrent"] = derive_config(flagship, training={"gdn_kernel": "recurrent", "param_dtype": "float32"})
    found["triton"] = derive_config(flagship, training={"gdn_kernel": "triton", "activation_checkpointing": "full"})
    found["rounded"] = derive_config(flagship, training={"reduce_dtype": "bfloat16"})
    found["replicas"] = derive_config(flagship, training={"dp_replicate": 2, "reshard_after_forward": True})
    return found


def as_tree(config: HyMoConfig) -> dict[str, Any]:
    """A configuration as plain values, as a run's config.yaml has them."""
    return dataclasses.asdict(config)


def planner_vectors() -> list[dict[str, Any]]:
    """Counts, cache and whole plans of every preset and of variants."""
    cases = []
    for name, config in _variants().items():
        model, length = config.model, config.training.seq_len
        plans = []
        for gpu, gpus, context, price in ((None, 1, None, None), ("h200", 1, 32768, 2.0), ("a100-40", 8, None, 1.5)):
            request = {"gpu": gpu, "gpus": gpus, "context": context, "price": price}
            try:
                result: dict[str, Any] | None = plan(config, gpu, gpus, context, price).to_dict()
            except UsageError:
                result = None
            plans.append({"request": request, "plan": result})
        tensors = {
            kind: [[t.name, list(t.shape), t.role.value] for t in listing(model)]
            for kind, listing in (
                ("gdn", gdn_tensors),
                ("mla", mla_tensors),
                ("moe", moe_tensors),
                ("mtp", mtp_tensors),
            )
        }
        count = count_parameters(model)
        cases.append(
            {
                "name": name,
                "config": as_tree(config),
                "tensors": tensors,
                "stored": count.stored,
                "active": count.active,
            }
            | {"parts": count.parts, "used": used_per_token(model, training=True), "state": state_bytes(model)}
            | {"served": used_per_token(model, training=False), "attention": attention_flops(model, length)}
            | {"flops": flops_per_token(model, length), "cacheNumbers": cache_numbers(model)}
            | {"cache": cache_bytes(model, 4096), "plans": plans}
        )
    return cases


def speculation_vectors() -> list[dict[str, Any]]:
    """What the engine's own draws keep, for given distributions, drafts and uniform numbers."""
    generator = torch.Generator().manual_seed(11)
    cases = []
    for _ in range(40):
        vocabulary, depth = 6, 2
        rows = torch.softmax(2 * torch.randn(depth + 1, vocabulary, generator=generator, dtype=torch.float64), -1)
        drafts = [int(rows[i].argmax()) if torch.rand((), generator=generator) < 0.7 else 5 for i in range(depth)]
        uniforms = torch.rand(depth + 1, generator=generator, dtype=torch.float64)
        drawn = draw(rows, uniforms).tolist()
        accepted = next((i for i in range(depth) if drawn[i] != drafts[i]), depth)
        stats = Speculation([0] * depth, [0] * depth)
        stats.note(depth, accepted)
        case = {
            "rows": _numbers(rows),
            "drafts": drafts,
            "uniforms": _numbers(uniforms),
            "kept": drafts[:accepted],
            "own": drawn[accepted],
        }
        cases.append(case | {"proposed": stats.proposed, "accepted": stats.accepted})
    return cases


def step_vectors() -> dict[str, Any]:
    """Factors of the schedule, and singular values through Newton-Schulz, step by step."""
    schedules = []
    for total, warmup, decay, least, shape in ((1000, 0.02, 0.15, 0.05, "linear"), (37, 0.1, 0.4, 0.0, "sqrt")):
        scheduler = JointWSDScheduler(
            total_steps=total,
            warmup_frac=warmup,
            stable_frac=1 - warmup - decay,
            decay_frac=decay,
            min_lr_ratio=least,
            decay_shape=shape,  # type: ignore[arg-type]
        )
        config = {"total": total, "warmup": warmup, "decay": decay, "least": least, "shape": shape}
        schedules.append(config | {"factors": [scheduler.factor(step) for step in range(total)]})
    generator = torch.Generator().manual_seed(5)
    orthogonal, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    values = torch.tensor([1.0, 0.6, 0.3, 0.1, 0.03, 0.01], dtype=torch.float64)
    matrix = orthogonal @ torch.diag(values) @ orthogonal.mT
    runs = []
    for name in ("polar_express", "jordan"):
        found = [
            torch.linalg.svdvals(newton_schulz(matrix, steps, name, torch.float64)).tolist() for steps in range(1, 8)
        ]
        runs.append({"coefficients": name, "input": values.tolist(), "sorted": found})
    return {"schedules": schedules, "newtonSchulz": runs}


def presets_data() -> dict[str, Any]:
    """Every preset resolved, devices, and the planner's constants: what the labs start from."""
    polynomials = {
        name: {"triples": [list(triple) for triple in p.triples], "margin": p.margin, "eps": p.eps}
        for name, p in _POLYNOMIALS.items()
    }
    devices = [
        {key: getattr(d, key) for key in ("key", "name", "memory", "bandwidth", "peak", "link")} for d in DEVICES
    ]
    return {
        "presets": {name: as_tree(load_config(name)) for name in preset_names()},
        "devices": devices,
        "constants": {
            "measured": dataclasses.asdict(MEASURED),
            "usable": USABLE_MEMORY,
            "levels": list(LEVELS),
            "logitChunk": LOGIT_CHUNK_ELEMENTS,
            "normuonRoles": {name: sorted(role.value for role in roles) for name, roles in NORMUON_ROLES.items()},
            "newtonSchulz": polynomials,
        },
    }


def bigram_data() -> dict[str, Any]:
    """How often each letter follows each other one in the packaged public-domain text."""
    import json

    text = "".join(json.loads(line)["text"] for line in sample_paths()["train"].read_text("utf-8").splitlines())
    plain = "".join(ch if ch in SYMBOLS else " " for ch in text.lower())
    plain = " ".join(plain.split())
    pairs = Counter(itertools.pairwise(plain))
    return {"symbols": SYMBOLS, "counts": [[pairs[(a, b)] for b in SYMBOLS] for a in SYMBOLS]}


VECTORS: dict[str, Callable[[], Any]] = {
    "labs/golden/recurrence.json": recurrence_vectors,
    "labs/golden/router.json": router_vectors,
    "labs/golden/planner.json": planner_vectors,
    "labs/golden/speculation.json": speculation_vectors,
    "labs/golden/step.json": step_vectors,
    "assets/data/presets.json": presets_data,
    "assets/data/bigrams.json": bigram_data,
}
"""Every file that the labs and their tests read, below docs/."""
