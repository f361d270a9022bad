"""The families of variants that answer the design's questions, as data: what changes, and what that tests.

A family starts from any configuration. A change may depend on it (one layer in two, a quarter of the heads), so that
the same family runs on a preset of four layers and on one of thirty-two. `match` names a width that is then set so that
a token uses as many parameters as in the base. `hymo.ablations.variants` builds configurations from this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hymo.core.accounting import count_parameters
from hymo.core.config import HyMoConfig, ModelConfig
from hymo.core.errors import UsageError, nearest

Changes = Mapping[str, Any]
"""New values by `group.field`."""
Change = Changes | Callable[[HyMoConfig], Changes]

_EXPERTS = "moe_inter_dim"
_AFTER_GDN = "gdn_ffn_dim"


@dataclass(frozen=True)
class Spec:
    """One variant of a family, before it meets a base."""

    name: str
    tests: str
    """What its difference to the base tells."""
    change: Change
    match: str | None = None
    """Width of the model that is set to meet the base's active parameters; None leaves the count as it comes."""


@dataclass(frozen=True)
class Family:
    """Variants that answer one question."""

    key: str
    title: str
    question: str
    specs: tuple[Spec, ...]
    limits: str
    """What runs of the size that the family is meant for cannot show."""
    rival: str | None = None
    """Variant that all others are compared with beside the base."""


def _stride(model: ModelConfig, every: int, first: int = 0) -> Changes:
    layers = range(first, model.n_layers, every)
    return {"model.mla_layers": tuple(layers) or (model.n_layers - 1,)}


def _ends(model: ModelConfig) -> Changes:
    """As many MLA blocks as the base, the first and the last block among them, the rest evenly between."""
    count, last = max(1, len(model.mla_layers)), model.n_layers - 1
    places = {round(i * last / (count - 1)) for i in range(count)} if count > 1 else {last}
    return {"model.mla_layers": tuple(sorted(places))}


def _largest_divisor(number: int, most: int) -> int:
    return max(d for d in range(1, max(1, most) + 1) if number % d == 0)


def _groups(share: int) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        heads = base.model.n_heads
        return {"model.n_kv_groups": _largest_divisor(heads, heads // share)}

    return change


def _before_attention(base: HyMoConfig) -> Changes:
    """The GDN block below each MLA block, as in the flagship; the last GDN block where there is none."""
    mla = base.model.mla_layers
    below = tuple(i - 1 for i in mla if i and i - 1 not in mla) or base.model.gdn_layers[-1:]
    return {"model.nope_hybrid_gdn_enabled": True, "model.nope_gdn_layers": below}


def _experts(numerator: int, denominator: int) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        m = base.model
        routed = max(1, m.n_routed_experts * numerator // denominator)
        active = max(1, m.n_activated_experts * numerator // denominator)
        return {"model.n_routed_experts": routed, "model.n_activated_experts": min(active, routed)}

    return change


def _every_layer(base: HyMoConfig) -> Changes:
    return {"model.moe_placement": "all", "model.gdn_ffn_dim": 0}


def _dense_transformer(base: HyMoConfig) -> Changes:
    """Softmax attention as commonly built: all layers, full rotation, whole keys and values, heads of dim / n_heads."""
    m = base.model
    head = m.dim // m.n_heads // 2 * 2  # dimensions rotate in pairs
    return {
        "model.mla_layers": tuple(range(m.n_layers)),
        "model.mla_latent": False,
        "model.head_dim": head,
        "model.v_head_dim": head,
        "model.rope_ratio": 1.0,
        "model.n_kv_groups": m.n_heads,
        "model.q_lora_rank": m.dim,
        "model.moe_placement": "none",
        "model.gdn_ffn_dim": 0,
    }


def _gdn_only(rule: str) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        return {"model.mla_layers": (), "model.gdn_recurrence": rule, "model.moe_placement": "none"}

    return change


def _tokens_per_parameter(ratio: int) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        return {"scheduler.total_tokens": ratio * count_parameters(base.model).active}

    return change


def _slower_adamw(cut: int) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        return {
            "optimizer.optimizer_partition": "adamw",
            "optimizer.adamw_lr": base.optimizer.adamw_lr / cut,
            "optimizer.adamw_weight_decay": base.optimizer.muon_weight_decay,
        }

    return change


def _together(*changes: Change, heads: bool = False) -> Callable[[HyMoConfig], Changes]:
    """Several changes at once, later ones over earlier ones; prediction heads go unless `heads`."""

    def change(base: HyMoConfig) -> Changes:
        found: dict[str, Any] = {"model.mtp_depth": (base.model.mtp_depth or 2) if heads else 0}
        for each in changes:
            found |= each(base) if callable(each) else each
        return found

    return change


def _winners(base: HyMoConfig) -> Changes:
    """The best of the rules, of the places of attention and of the optimizers, by the mean of two seeds."""
    return {
        "model.gdn_recurrence": "gated_delta",
        "optimizer.optimizer_partition": "normuon_all",
        **_stride(base.model, 4, 3),
    }


def _rates(muon: float, adamw: float) -> Callable[[HyMoConfig], Changes]:
    def change(base: HyMoConfig) -> Changes:
        o = base.optimizer
        return {"optimizer.muon_lr": muon * o.muon_lr, "optimizer.adamw_lr": adamw * o.adamw_lr}

    return change


def _odd(base: HyMoConfig) -> Changes:
    return _stride(base.model, 2, 1)


def _plain_attention(base: HyMoConfig) -> Changes:
    """Whole keys and values of a head each, all dimensions rotated, where the base attends."""
    spared = ("model.mla_layers", "model.moe_placement", "model.gdn_ffn_dim")
    return {path: value for path, value in _dense_transformer(base).items() if path not in spared}


_FULL_ROPE: Changes = {"model.rope_ratio": 1.0}
_LONG: Changes = {
    "model.gdn_recurrence": "gated_linear",
    "model.gdn_decay_init": "log_uniform",
    "model.gdn_output_norm": True,
}
_SMALL: Changes = {"model.gdn_gate": "full", "model.gdn_rope_target": "none"}

_SCALE = (
    "Differences between variants move with size and training length: a sign at this scale is evidence for the next "
    "run, no forecast for the flagship."
)

_ALL = (
    Family(
        "A",
        "Where the experts are",
        "Do experts on the attention blocks alone do what experts on every block do?",
        (
            Spec("attention blocks", "the design", {"model.moe_placement": "attention"}),
            Spec("every block", "whether GDN blocks want experts too", _every_layer, _EXPERTS),
            Spec("dense", "whether experts pay at all", {"model.moe_placement": "none"}, _EXPERTS),
        ),
        "What sparse experts gain grows with training length: short runs favour dense networks. Under the design's "
        "partition AdamW updates experts and NorMuon a dense feed-forward: B tells what that does.",
    ),
    Family(
        "B",
        "Who updates which matrix",
        "Does NorMuon for matrices and AdamW for the rest train faster than one optimizer for all?",
        (
            Spec("NorMuon + AdamW", "the design", {"optimizer.optimizer_partition": "hybrid"}),
            Spec("AdamW", "what orthogonal updates gain", {"optimizer.optimizer_partition": "adamw"}),
            Spec("NorMuon everywhere", "whether experts want it too", {"optimizer.optimizer_partition": "normuon_all"}),
            Spec("Muon + AdamW", "what the normalised rows gain", {"optimizer.muon_normalize": False}),
            *(
                Spec(f"AdamW, {share} the rate", "AdamW alone, slower, with the matrices' decay", _slower_adamw(cut))
                for cut, share in ((2, "half"), (4, "a quarter of"), (8, "an eighth of"))
            ),
        ),
        "Variants keep the base's learning rates where no other is named; AdamW alone has four. NorMuon decays "
        "weights, AdamW does in its three slower variants only: experts that change sides get a decay with it.",
    ),
    Family(
        "C",
        "Multi-token prediction",
        "Do prediction heads lower the main loss at equal tokens?",
        tuple(
            Spec(name, tests, {"model.mtp_depth": depth})
            for depth, (name, tests) in enumerate(
                (("no heads", "the model alone"), ("1 head", "one token more"), ("2 heads", "two more: the design"))
            )
        ),
        "Published gains grow with size; at tens of millions of parameters heads often cost a little.",
    ),
    Family(
        "D",
        "Key/value groups",
        "Are few groups of keys and values enough?",
        (
            Spec("1 group", "one for all heads (MQA)", {"model.n_kv_groups": 1}),
            Spec("a quarter of the heads", "the design's share", _groups(4)),
            Spec("half of the heads", "twice the groups", _groups(2)),
            Spec("all heads", "one group a head (MHA)", _groups(1)),
        ),
        "Short contexts ask little of the cache: differences in long-range recall stay hidden.",
    ),
    Family(
        "E",
        "Inside the recurrence",
        "Which rule, decay, normalisation, gate and rotation serve a GDN block best?",
        (
            Spec("gated_linear", "the rule of v1.0", {"model.gdn_recurrence": "gated_linear"}),
            Spec("gated_delta", "the delta rule", {"model.gdn_recurrence": "gated_delta"}),
            Spec("decay log-uniform", "memory up to the context at the start", {"model.gdn_decay_init": "log_uniform"}),
            Spec("decay per head", "one decay for a whole head", {"model.gdn_decay_sharing": "head"}),
            Spec("output norm", "outputs of bounded size", {"model.gdn_output_norm": True}),
            Spec(
                "log-uniform and norm",
                "long memory with bounded outputs, as gated_delta has",
                {"model.gdn_decay_init": "log_uniform", "model.gdn_output_norm": True},
            ),
            Spec("gate per channel", "a gate for each channel", {"model.gdn_gate": "full"}),
            Spec("no gate", "whether the gate earns its matrix", {"model.gdn_gate": "none"}, _EXPERTS),
            Spec("RoPE on values", "rotation that makes nothing relative", {"model.gdn_rope_target": "v"}),
            Spec("no RoPE in GDN", "whether the recurrence needs positions", {"model.gdn_rope_target": "none"}),
        ),
        "Documents shorter than the context reward long memory little. Recall is measured apart: docs/recall.md.",
    ),
    Family(
        "F",
        "Positions",
        "How much rotation does the model need?",
        (
            Spec("partial RoPE", "a quarter of each head: the design", {"model.rope_ratio": 0.25}),
            Spec("full RoPE", "every dimension of a head", {"model.rope_ratio": 1.0}),
            Spec("NoPE in some GDN blocks", "the block below attention without rotation", _before_attention),
            Spec("NoPE", "no rotation anywhere", {"model.rope_ratio": 0.0, "model.gdn_rope_target": "none"}),
        ),
        "Loss at the trained context says nothing about longer ones: `hymo recall positions RUN --beyond` does.",
    ),
    Family(
        "G",
        "Number of experts",
        "How finely should the experts be cut?",
        (
            Spec("four times as many", "finer experts, as many parameters a token", _experts(4, 1), _EXPERTS),
            Spec("half as many", "coarser experts, as many parameters a token", _experts(1, 2), _EXPERTS),
            Spec("no shared expert", "what the shared expert is for", {"model.n_shared_experts": 0}, _EXPERTS),
        ),
        "Few tokens per expert: fine experts are undertrained in short runs.",
    ),
    Family(
        "H",
        "Routing",
        "How should load be balanced, and scores be formed?",
        (
            Spec("smoothed bias", "the design", {"model.moe_bias_update": "ema"}),
            Spec("sign of the last load", "whether smoothing helps", {"model.moe_bias_update": "sign"}),
            Spec("softmax scores", "whether sigmoid scores help", {"model.router_score": "softmax"}),
            Spec("capacity 1.5", "what dropping costs", {"model.capacity_factor": 1.5}),
            Spec(
                "balance loss",
                "a loss in place of the bias",
                {"model.moe_bias_speed": 0.0, "model.balance_loss_alpha": 1e-3},
            ),
            Spec("no balancing", "whether anything is needed", {"model.moe_bias_speed": 0.0}),
        ),
        "The bias moves by a thousandth a step: in a run of a few hundred steps it has hardly acted.",
    ),
    Family(
        "I",
        "The stack",
        "How many blocks should attend, and which?",
        (
            Spec("1:1", "every second block attends", lambda c: _stride(c.model, 2), _EXPERTS),
            Spec("3:1", "every fourth: the design", lambda c: _stride(c.model, 4), _EXPERTS),
            Spec("7:1", "every eighth", lambda c: _stride(c.model, 8), _EXPERTS),
            Spec("no attention", "the recurrence alone", {"model.mla_layers": ()}, _AFTER_GDN),
            Spec("attention only", "what the recurrence gains", lambda c: _stride(c.model, 1), _EXPERTS),
            Spec("first at 1", "a recurrence below", lambda c: _stride(c.model, 4, 1), _EXPERTS),
            Spec("first at 3", "three below", lambda c: _stride(c.model, 4, 3), _EXPERTS),
            Spec("both ends", "first and last block attend", lambda c: _ends(c.model), _EXPERTS),
        ),
        "With few blocks one place more or less is a large share; the ratio of a deep stack needs a deep stack.",
    ),
    Family(
        "J",
        "Length of training",
        "Do more tokens per active parameter still pay?",
        tuple(
            Spec(f"{ratio} tokens a parameter", "length alone", _tokens_per_parameter(ratio)) for ratio in (20, 30, 69)
        ),
        "More passes over one small corpus are no substitute for more text. The quality filter and the choice of "
        "languages need corpora of their own: prepare each, and give it with --data.",
    ),
    Family(
        "rates",
        "Learning rates",
        "Are the base's learning rates right, and do they carry over from one width to another?",
        (
            Spec("both halved", "slower", _rates(0.5, 0.5)),
            Spec("both doubled", "faster", _rates(2.0, 2.0)),
            Spec("NorMuon halved", "the matrices alone, slower", _rates(0.5, 1.0)),
            Spec("NorMuon doubled", "the matrices alone, faster", _rates(2.0, 1.0)),
            Spec("AdamW halved", "the rest alone, slower", _rates(1.0, 0.5)),
            Spec("AdamW doubled", "the rest alone, faster", _rates(1.0, 2.0)),
        ),
        "Rates that suit a short schedule may be too high for a long one.",
    ),
    Family(
        "baselines",
        "Against one kind of mixing",
        "Is the hybrid better than a dense transformer and than recurrence alone, at equal active parameters?",
        (
            Spec("dense transformer", "attention and dense feed-forward in every block", _dense_transformer, _EXPERTS),
            Spec("GDN only", "the recurrence of v1.0 alone", _gdn_only("gated_linear"), _AFTER_GDN),
            Spec("GDN only, gated_delta", "the delta rule alone", _gdn_only("gated_delta"), _AFTER_GDN),
        ),
        "All share the base's learning rates and schedule, which were not tuned for any of them. NorMuon updates all "
        "matrices of the baselines, and AdamW the base's experts.",
    ),
    Family(
        "next",
        "Winners together",
        "Do the choices that won one by one win together, and against a dense transformer that drops the heads too?",
        (
            Spec(
                "winners with heads",
                "delta rule, attention from 3 on, NorMuon for all",
                _together(_winners, heads=True),
            ),
            Spec("winners", "the same without prediction heads", _together(_winners), _EXPERTS),
            Spec("winners, dense", "without experts", _together(_winners, {"model.moe_placement": "none"}), _EXPERTS),
            Spec(
                "winners, experts everywhere",
                "with experts in every block",
                _together(_winners, _every_layer),
                _EXPERTS,
            ),
            Spec("winners, full RoPE", "every dimension of a head rotated", _together(_winners, _FULL_ROPE), _EXPERTS),
            Spec("winners, one group a head", "MHA", _together(_winners, _groups(1)), _EXPERTS),
            Spec(
                "winners, plain attention",
                "attention as the dense transformer has it",
                _together(_winners, _plain_attention),
                _EXPERTS,
            ),
            Spec("winners, 1:1", "every second block attends", _together(_winners, _odd), _EXPERTS),
            Spec(
                "winners, small gains too", "a gate per channel, no RoPE in GDN", _together(_winners, _SMALL), _EXPERTS
            ),
            Spec(
                "winners, gated_linear", "long memory in place of the delta rule", _together(_winners, _LONG), _EXPERTS
            ),
            Spec("dense transformer, no heads", "the rival without heads", _together(_dense_transformer), _EXPERTS),
        ),
        "The choices were made on the same text. Confirm the winner on seeds that were not looked at. The rival's "
        "queries keep two steps at full rank, which spends a few per cent of its matrices on nothing.",
        rival="dense transformer, no heads",
    ),
)

FAMILIES: Mapping[str, Family] = {family.key: family for family in _ALL}
"""Every family by its key: A to J, rates, baselines and next."""
CUSTOM = "custom"
"""Family of the variants that a caller names alone."""
GENERAL_LIMITS = _SCALE


def family(key: str) -> Family:
    """The family of a key, in any case.

    Raises:
        UsageError: an unknown one, with the nearest.
    """
    for known in FAMILIES.values():
        if known.key.lower() == key.lower():
            return known
    if key.lower() == CUSTOM:
        return Family(CUSTOM, "Variants of one's own", "Which of these is better?", (), "")
    names = [*FAMILIES, CUSTOM]
    raise UsageError(f"{key}: unknown family{nearest(key, names)}. Families: {', '.join(names)}.")
