"""HyMo in numpy fp64 loops, written from the equations of the paper page; shares no code with `hymo`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_oracles import gated_delta_loop, gated_linear_loop

Array = NDArray[np.float64]
Weights = dict[str, Array]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def rotate(x: Array, positions: Array, theta: float, pairing: str) -> Array:
    """Pairs as complex numbers times e^(i position theta^(-2p/d)); x (T, heads, d)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * theta ** (-2 * np.arange(half) / x.shape[-1])
    if pairing == "half_split":
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
        return np.concatenate((turned.real, turned.imag), -1)
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    out = np.empty_like(x)
    out[..., ::2], out[..., 1::2] = turned.real, turned.imag
    return out


def swiglu(x: Array, w: Weights, prefix: str) -> Array:
    w1, w3, w2 = (w[f"{prefix}.{n}.weight"] for n in ("w1", "w3", "w2"))
    return (silu(x @ w1.T) * (x @ w3.T)) @ w2.T


def gdn(x: Array, w: Weights, p: str, cfg: Any, layer: int, positions: Array) -> Array:
    """One document (T, dim) through one GDN block's recurrent half."""
    time, heads, taps = len(x), cfg.gdn_d_inner // cfg.gdn_headdim, cfg.gdn_d_conv
    h = rms_norm(x, w[f"{p}.norm.weight"])
    u = h @ w[f"{p}.in_proj.weight"].T
    v = np.zeros_like(u)
    for t in range(time):
        for tap in range(taps):
            if t - (taps - 1) + tap >= 0:
                v[t] += w[f"{p}.conv_weight"][:, tap] * u[t - (taps - 1) + tap]
    v = silu(v)
    b = (v @ w[f"{p}.b_proj.weight"].T).reshape(time, heads, cfg.gdn_d_state)
    c = (v @ w[f"{p}.c_proj.weight"].T).reshape(time, heads, cfg.gdn_d_state)
    values = v.reshape(time, heads, cfg.gdn_headdim)
    inner = values
    rotates = cfg.gdn_rope_target != "none" and not (cfg.nope_hybrid_gdn_enabled and layer in cfg.nope_gdn_layers)
    if rotates and cfg.gdn_rope_target == "bc":
        b, c = (rotate(z, positions, cfg.rope_theta, cfg.rope_pairing) for z in (b, c))
    elif rotates:
        inner = rotate(values, positions, cfg.rope_theta, cfg.rope_pairing)
    a_log = w[f"{p}.A_log"].copy()
    states = cfg.gdn_d_state
    if cfg.gdn_decay_sharing == "head" or cfg.gdn_recurrence == "gated_delta":
        a_log[:] = a_log.mean(-1, keepdims=True)
    elif rotates and cfg.gdn_rope_target == "bc":
        for s in range(states):
            mate = (s + states // 2) % states if cfg.rope_pairing == "half_split" else s ^ 1
            a_log[:, s] = (w[f"{p}.A_log"][:, s] + w[f"{p}.A_log"][:, mate]) / 2
    dt = v @ w[f"{p}.dt_proj.weight"].T + w[f"{p}.dt_bias"]
    if cfg.gdn_recurrence == "gated_delta":
        k, q = (z / np.sqrt((z**2).sum(-1, keepdims=True) + 1e-6) for z in (b, c))
        beta = sigmoid(v @ w[f"{p}.beta_proj.weight"].T)
        log_alpha = -np.exp(a_log[:, 0]) * np.log1p(np.exp(dt))
        o = gated_delta_loop(q[None] / np.sqrt(states), k[None], inner[None], beta[None], log_alpha[None])[0][0]
    else:
        o = gated_linear_loop(inner[None], b[None], c[None], sigmoid(dt)[None], np.exp(a_log))[0][0]
    if f"{p}.o_norm.weight" in w:
        o = rms_norm(o, w[f"{p}.o_norm.weight"])
    o = o + w[f"{p}.D_skip"][:, None] * values
    if cfg.gdn_gate != "none":
        gate = sigmoid(v @ w[f"{p}.g_proj.weight"].T).reshape(time, heads, cfg.gdn_headdim)
        o = o * (gate.mean(-1, keepdims=True) if cfg.gdn_gate == "mean" else gate)
    return x + o.reshape(time, -1) @ w[f"{p}.out_proj.weight"].T + h @ w[f"{p}.skip_proj.weight"].T


def attention(x: Array, w: Weights, p: str, cfg: Any, positions: Array) -> Array:
    """One document (T, dim) through one block's attention half."""
    time, heads, groups = len(x), cfg.n_heads, cfg.n_kv_groups
    rope, content = cfg.qk_rope_head_dim, cfg.head_dim - cfg.qk_rope_head_dim
    h = rms_norm(x, w[f"{p}.norm.weight"])
    p = f"{p}.attention"
    q = rms_norm(h @ w[f"{p}.wq_a.weight"].T, w[f"{p}.q_norm.weight"]) @ w[f"{p}.wq_b.weight"].T * w[f"{p}.q_norm_qk"]
    q = q.reshape(time, heads, cfg.head_dim).copy()
    if cfg.mla_latent:
        low = h @ w[f"{p}.wkv_a.weight"].T
        latent, k_pe = rms_norm(low[:, : cfg.kv_lora_rank], w[f"{p}.kv_norm.weight"]), low[:, cfg.kv_lora_rank :]
        wide = (latent @ w[f"{p}.wkv_b.weight"].T).reshape(time, groups, content + cfg.v_head_dim)
        k_nope, v = wide[..., :content], wide[..., content:]
        k_pe = np.repeat(k_pe[:, None], groups, 1)
    else:
        k = (h @ w[f"{p}.wk.weight"].T).reshape(time, groups, cfg.head_dim)
        k_pe, k_nope = k[..., :rope], k[..., rope:]
        v = (h @ w[f"{p}.wv.weight"].T).reshape(time, groups, cfg.v_head_dim)
    if rope:
        k_pe = rotate(k_pe * w[f"{p}.k_norm_qk"].reshape(groups, rope), positions, cfg.rope_theta, cfg.rope_pairing)
        q[..., :rope] = rotate(q[..., :rope], positions, cfg.rope_theta, cfg.rope_pairing)
    k = np.concatenate((k_pe, k_nope), -1)
    out = np.zeros((time, heads, cfg.v_head_dim))
    for head in range(heads):
        group = head // (heads // groups)
        for t in range(time):
            scores = k[: t + 1, group] @ q[t, head] / np.sqrt(cfg.head_dim)
            weights = np.exp(scores - scores.max())
            out[t, head] = weights / weights.sum() @ v[: t + 1, group]
    return x + out.reshape(time, -1) @ w[f"{p}.wo.weight"].T


def feed_forward(x: Array, w: Weights, p: str, cfg: Any) -> Array:
    h = rms_norm(x, w[f"{p}.norm.weight"])
    if f"{p}.moe.router" not in w:
        return x + swiglu(h, w, f"{p}.dense")
    out = np.zeros_like(x)
    for t, token in enumerate(h):
        logits = w[f"{p}.moe.router"] @ token
        scores = sigmoid(logits) if cfg.router_score == "sigmoid" else np.exp(logits) / np.exp(logits).sum()
        chosen = np.argsort(-(scores + w[f"{p}.moe.bias"]))[: cfg.n_activated_experts]
        for e in chosen:
            hidden = silu(w[f"{p}.moe.w1"][e] @ token) * (w[f"{p}.moe.w3"][e] @ token)
            out[t] += cfg.route_scale * scores[e] / scores[chosen].sum() * (w[f"{p}.moe.w2"][e] @ hidden)
    if f"{p}.moe.shared.w1.weight" in w:
        out += swiglu(h, w, f"{p}.moe.shared")
    return x + out


def hidden_states(tokens: NDArray[np.int64], w: Weights, cfg: Any, start: int = 0) -> Array:
    """Hidden states after the final norm of one document (T,)."""
    positions = np.arange(start, start + len(tokens), dtype=np.float64)
    x = w["embed.weight"][tokens] * np.sqrt(cfg.dim)
    for layer in range(cfg.n_layers):
        p = f"layers.{layer}"
        x = attention(x, w, p, cfg, positions) if layer in cfg.mla_layers else gdn(x, w, p, cfg, layer, positions)
        if f"{p}.feed_forward.norm.weight" in w:
            x = feed_forward(x, w, f"{p}.feed_forward", cfg)
    return rms_norm(x, w["norm.weight"])


def head(hidden: Array, w: Weights, cfg: Any) -> Array:
    logits = hidden @ w.get("head.weight", w["embed.weight"]).T
    return cfg.logit_softcap * np.tanh(logits / cfg.logit_softcap) if cfg.logit_softcap else logits


def cross_entropy(logits: Array, target: int) -> float:
    top = logits.max()
    return float(top + np.log(np.exp(logits - top).sum()) - logits[target])


def losses(window: NDArray[np.int64], documents: list[int], w: Weights, cfg: Any) -> dict[str, list[float]]:
    """Loss of every target by head for one row of T+1 tokens; `documents` names the document of each token.

    Hidden states are formed per document over the first T tokens. Head d reads position t, is given tokens up to t + d
    and predicts token t + d + 1, if all of them lie in one document.
    """
    hidden = np.zeros((len(window) - 1, cfg.dim))
    for document in set(documents[:-1]):
        place = [t for t in range(len(window) - 1) if documents[t] == document]
        hidden[place] = hidden_states(window[place], w, cfg)
    scaled = w["embed.weight"] * np.sqrt(cfg.dim)
    found: dict[str, list[float]] = {"main": [], **{f"mtp_{d}": [] for d in range(1, cfg.mtp_depth + 1)}}
    for t in range(len(window) - 1):
        chain, out = hidden[t], hidden[t]
        for depth in range(cfg.mtp_depth + 1):
            goal = t + depth + 1
            if goal >= len(window) or documents[goal] != documents[t]:
                break
            if depth:
                p = f"mtp.blocks.{depth - 1}"
                u = chain + scaled[window[t + depth]]
                chain = u + swiglu(rms_norm(u, w[f"{p}.norm.weight"]), w, f"{p}.ffn")
                out = rms_norm(chain, w[f"{p}.out_norm.weight"])
            found["main" if depth == 0 else f"mtp_{depth}"].append(cross_entropy(head(out, w, cfg), int(window[goal])))
    return found


def weights_of(model: Any) -> Weights:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
