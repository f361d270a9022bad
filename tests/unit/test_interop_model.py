"""The exported form of the model against the package's, in fp64 and for every variant that it has."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from hymo import kernels
from hymo.core.config import ModelConfig
from hymo.core.errors import UsageError
from hymo.interop.card import LORA_PARAMETERS, LORA_TARGETS
from hymo.interop.modeling_hymo import CACHE, HymoCache, gated_linear
from hymo.interop.names import check_exportable, from_hf, to_hf
from hymo.models import build_hymo
from interop_helpers import twin
from model_helpers import build, close, draw_tokens, micro, slow_decay

VARIANTS: list[dict[str, Any]] = [
    {},
    {"gdn_recurrence": "gated_delta"},
    {"tie_embeddings": False, "logit_softcap": 0.0, "max_seq_len": 200},
    {"router_score": "softmax", "gdn_gate": "full", "gdn_output_norm": True, "gdn_ffn_dim": 20},
    {"moe_placement": "all", "gdn_rope_target": "none", "gdn_d_conv": 3, "mtp_depth": 1},
    {"moe_placement": "none", "gdn_decay_sharing": "head", "gdn_gate": "none", "gdn_decay_init": "log_uniform"},
    {"nope_hybrid_gdn_enabled": True, "nope_gdn_layers": [1], "n_shared_experts": 0, "route_scale": 1.5},
    {"gdn_recurrence": "gated_delta", "qk_rope_head_dim": 0, "n_kv_groups": 4, "n_shared_experts": 2},
    {"qk_rope_head_dim": 16, "n_kv_groups": 1, "rope_theta": 500.0, "gdn_recurrence": "gated_delta", "mla_layers": []},
    {"mla_layers": [0, 1, 2, 3], "n_activated_experts": 3, "mtp_depth": 0},
    {"vocab_size": 70, "dim": 24, "n_layers": 2, "mla_layers": [1], "n_heads": 2, "head_dim": 24, "v_head_dim": 8},
    {"q_lora_rank": 5, "kv_lora_rank": 7, "gdn_d_inner": 36, "gdn_d_state": 6, "gdn_headdim": 9, "gdn_chunk_size": 32},
    {"n_routed_experts": 3, "moe_inter_dim": 10},
]
REFUSED: dict[str, Any] = {
    "rope_pairing": "interleaved",
    "gdn_rope_target": "v",
    "yarn_factor": 2.0,
    "mla_latent": False,
}
TRAINING_ONLY = {
    *("init_std", "router_init_std", "capacity_factor", "balance_loss_alpha", "mtp_loss_weights", "mtp_anneal_frac"),
    *("moe_ema_alpha", "moe_bias_speed", "moe_dead_band", "moe_bias_update"),
}
DEPENDENT = {"rope_ratio"}


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: ",".join(changes) or "default")
def test_logits_and_gradients_are_the_models(changes: dict[str, Any]) -> None:
    model = slow_decay(build(double=True, **changes))
    for mixture in model.mixtures():
        mixture.bias.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(mixture.layer))
    hf = twin(model)
    tokens = draw_tokens(2, 41)
    expected, actual = model(tokens), hf(tokens).logits
    assert expected.std() > 0.05
    close(actual, expected)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (expected * weights).sum().backward()
    (actual * weights).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    wanted = to_hf({**{n: torch.zeros_like(t) for n, t in model.state_dict().items()}, **gradients}, model.config)
    for name, parameter in hf.named_parameters():
        close(parameter.grad, wanted[name], 1e-8)


def test_every_field_of_the_model_is_tried_refused_or_of_no_matter() -> None:
    tried = {name for changes in VARIANTS for name in changes}
    assert tried | set(REFUSED) | TRAINING_ONLY | DEPENDENT == {field.name for field in dataclasses.fields(ModelConfig)}


@pytest.mark.parametrize("name", REFUSED)
def test_other_variants_are_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^model\.{name}: "):
        check_exportable(micro(**{name: REFUSED[name]}).model)


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: ",".join(changes) or "default")
def test_names_lead_back_bit_for_bit(changes: dict[str, Any]) -> None:
    model = build(**changes)
    for mixture in model.mixtures():
        mixture.bias.uniform_(-1, 1)
        mixture.load_ema.uniform_()
    other = build_hymo(model.config, seed=5)
    from_hf(to_hf(model.state_dict(), model.config), other.state_dict(), model.config, "here")
    state = other.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
@pytest.mark.parametrize("cuts", [(1,), (2, 3), (4, 5, 6), (15, 16, 17), (39, 40), tuple(range(1, 41))])
def test_any_split_with_a_cache_gives_one_pass(recurrence: str, cuts: tuple[int, ...]) -> None:
    hf = twin(slow_decay(build(double=True, gdn_recurrence=recurrence)))
    tokens = draw_tokens(2, 41)
    with torch.no_grad():
        expected = hf(tokens, use_cache=False).logits
        cache, parts = None, []
        for start, end in zip((0, *cuts), (*cuts, 41), strict=True):
            out = hf(tokens[:, start:end], cache=cache)
            cache = getattr(out, CACHE)
            parts.append(out.logits)
    close(torch.cat(parts, 1), expected)
    assert isinstance(cache, HymoCache)
    assert cache.get_seq_length() == 41
    shapes = [{name: tuple(x.shape) for name, x in layer.tensors.items()} for layer in cache.layers]
    assert shapes[0] == {"latent": (2, 41, 16), "rope_keys": (2, 41, 2, 8)}
    assert shapes[1] == {"state": (2, 4, 8, 12), "window": (2, 3, 48)}


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_moves_neither_logits_nor_gradients(recurrence: str, side: str) -> None:
    hf = twin(slow_decay(build(double=True, gdn_recurrence=recurrence, tie_embeddings=False)))
    tokens = draw_tokens(2, 30)
    lengths = (30, 13)
    mask = torch.zeros(2, 30, dtype=torch.int64)
    for row, length in enumerate(lengths):
        mask[row, slice(30 - length, None) if side == "left" else slice(length)] = 1

    def gradients(rows: list[tuple[torch.Tensor, torch.Tensor | None]]) -> tuple[list[torch.Tensor], torch.Tensor]:
        hf.zero_grad()
        kept = []
        for ids, real in rows:
            logits = hf(ids, attention_mask=real).logits
            kept += [logits] if real is None else [logits[i, real[i].bool()][None] for i in range(len(ids))]
        sum(logits.square().sum() for logits in kept).backward()
        return kept, torch.cat([p.grad.flatten() for p in hf.parameters() if p.grad is not None])

    solo = [(tokens[i : i + 1, mask[i].bool()], None) for i in range(2)]
    alone, expected = gradients(list(solo))
    batched, actual = gradients([(tokens, mask)])
    for one, other in zip(batched, alone, strict=True):
        close(one, other)
    close(actual, expected, 1e-9)


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
def test_padding_anywhere_between_calls(recurrence: str) -> None:
    hf = twin(slow_decay(build(double=True, gdn_recurrence=recurrence)))
    texts = draw_tokens(3, 24)
    # Left, right and both; a row without any real token in a call; calls shorter than the convolution.
    calls = [
        ("..xxxxx", "xxxx...", ".xx.xx."),
        ("xx", "..", ".x"),
        ("x.x.xx", "xxxxxx", "......"),
        ("xxx", "x..", "..x"),
    ]
    taken = [0, 0, 0]
    mask, cache = torch.zeros(3, 0, dtype=torch.int64), None
    parts: list[list[torch.Tensor]] = [[], [], []]
    with torch.no_grad():
        for rows in calls:
            real = torch.tensor([[int(c == "x") for c in row] for row in rows])
            tokens = draw_tokens(*real.shape, seed=9)
            for row in range(3):
                count = int(real[row].sum())
                tokens[row, real[row].bool()] = texts[row, taken[row] : taken[row] + count]
                taken[row] += count
            mask = torch.cat((mask, real), 1)
            out = hf(tokens, attention_mask=mask, cache=cache)
            cache = getattr(out, CACHE)
            for row in range(3):
                parts[row].append(out.logits[row, real[row].bool()])
        for row in range(3):
            close(torch.cat(parts[row]), hf(texts[row : row + 1, : taken[row]]).logits[0])
    assert taken == [14, 11, 6]


def test_slow_steps_beside_fast_ones_in_fp32() -> None:
    generator = torch.Generator().manual_seed(0)
    v, b, c = (torch.randn(1, 64, 2, 4, generator=generator) for _ in range(3))
    g = torch.where(torch.arange(64) < 32, 1.0, 1e-6)[None, :, None].expand(1, 64, 2)
    rates = torch.full((2, 4), 10.0)
    wide = [x.double() for x in (v, b, c, g, rates)]
    expected, final = kernels.gated_linear(*wide, output_final_state=True, implementation="recurrent")
    actual, state = gated_linear(v, b, c, g, rates, torch.zeros(1, 2, 4, 4), 64)
    close(actual, expected, 2e-4)
    close(state, final, 2e-4)


def test_router_of_a_bf16_model_is_the_packages() -> None:
    model = build().to(torch.bfloat16)
    hf = twin(model)
    (first, *_) = model.mixtures()
    first.bias.uniform_(-0.02, 0.02)
    gate = hf.model.layers[0].mlp.gate
    gate.e_score_correction_bias.copy_(first.bias)
    x = torch.randn(300, 32, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    chosen, weights, _ = first.route(x)
    assert torch.equal(gate(x)[0], chosen)
    assert torch.equal(gate(x)[1], weights)
    assert weights.dtype == torch.float32


def test_batch_of_one_with_padding_is_the_text_alone() -> None:
    hf = twin(build(double=True))
    tokens = draw_tokens(1, 12)
    mask = torch.ones(1, 17, dtype=torch.int64)
    mask[:, :5] = 0
    padded = torch.cat((draw_tokens(1, 5, seed=2), tokens), 1)
    with torch.no_grad():
        close(hf(padded, attention_mask=mask).logits[:, 5:], hf(tokens).logits)
        out = hf(padded[:, :9], attention_mask=mask[:, :9])  # and cut inside
        close(hf(padded[:, 9:], attention_mask=mask, cache=getattr(out, CACHE)).logits, hf(tokens).logits[:, 4:])


def test_loss_is_the_models_main_loss() -> None:
    model = build(double=True)
    hf = twin(model)
    tokens = draw_tokens(2, 20)
    labels = tokens.clone()
    labels[0, :7] = -100
    targets = labels[:, 1:]
    expected = model.loss(tokens[:, :-1], targets)["main"]
    close(hf(tokens, labels=labels).loss, expected, 1e-6)  # transformers takes the logits to fp32


def test_logits_of_the_last_tokens_only() -> None:
    hf = twin(build(double=True))
    tokens = draw_tokens(2, 9)
    close(hf(tokens, logits_to_keep=2).logits, hf(tokens).logits[:, -2:])
    embedded = hf.get_input_embeddings()(tokens)
    close(hf(inputs_embeds=embedded).logits, hf(tokens).logits)
    logits, *_ = hf(tokens, use_cache=False, return_dict=False)
    close(logits, hf(tokens).logits)
    states = hf(tokens, output_hidden_states=True).hidden_states
    assert len(states) == 5
    close(states[-1], hf.model(tokens).last_hidden_state)


def test_beams_and_several_continuations() -> None:
    hf = twin(build(tie_embeddings=False))
    tokens = draw_tokens(2, 6)
    settings: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 2}
    cached = hf.generate(tokens, num_beams=3, num_return_sequences=2, **settings)
    assert torch.equal(cached, hf.generate(tokens, num_beams=3, num_return_sequences=2, use_cache=False, **settings))
    assert cached.shape == (4, 14)


def test_what_a_recurrent_state_cannot_do_is_said() -> None:
    hf = twin(build())
    with pytest.raises(ValueError, match="assisted generation is not supported"):
        hf.generate(draw_tokens(1, 4), assistant_model=hf, max_new_tokens=2, do_sample=False)
    with pytest.raises(NotImplementedError, match="cannot be cropped"):
        HymoCache(hf.config).crop(-1)
    with pytest.raises(TypeError, match="HymoCache"):
        hf(draw_tokens(1, 4), cache=object())
    with pytest.raises(ValueError, match="attention_mask: expected"):
        hf(draw_tokens(1, 4), attention_mask=torch.ones(1, 3))
    with pytest.raises(ValueError, match="161 tokens exceed the context of 160"):
        hf(draw_tokens(1, 161))
    mask = torch.ones(1, 161, dtype=torch.int64)
    mask[0, 0] = 0
    assert hf(draw_tokens(1, 161), attention_mask=mask).logits.shape[1] == 161  # one of them is padding
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        hf()


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
def test_bf16_keeps_the_islands_and_is_the_models_bf16(recurrence: str) -> None:
    model = build(gdn_recurrence=recurrence)
    hf = twin(model).to(torch.bfloat16)
    narrow = model.to(torch.bfloat16)
    wide = {name for name, t in (*hf.named_parameters(), *hf.named_buffers()) if t.dtype == torch.float32}
    islands = {"A_log", "D_skip", "dt_bias", "gate.weight", "gate.e_score_correction_bias", "gate.load_ema"}
    assert {name.split("linear_attn.")[-1].split("mlp.")[-1] for name in wide} == islands
    ours = to_hf(narrow.state_dict(), model.config)
    assert all(torch.equal(tensor, ours[name]) for name, tensor in hf.state_dict().items() if name in ours)
    tokens = draw_tokens(2, 60)
    with torch.no_grad():
        expected, actual = narrow(tokens), hf(tokens).logits
    assert actual.dtype == torch.float32
    assert (actual - expected).abs().mean() < 0.02 * expected.std()
    assert hf.lm_head.weight is hf.model.embed_tokens.weight


def test_a_new_model_starts_sound() -> None:
    config = twin(build()).config
    hf = type(twin(build()))(config).eval()
    assert all(bool(tensor.isfinite().all()) for tensor in hf.state_dict().values())
    loss = hf(draw_tokens(2, 30), labels=draw_tokens(2, 30, seed=1)).loss
    assert abs(float(loss) - 4.16) < 0.3  # ln 64


def test_lora_trains_a_step_on_the_named_targets() -> None:
    import peft

    model = build(moe_placement="all", gdn_recurrence="gated_delta")
    hf = twin(model)
    settings = peft.LoraConfig(
        r=2, target_modules=list(LORA_TARGETS), target_parameters=list(LORA_PARAMETERS), task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(hf, settings)
    trained = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    # By hand: r (in + out) a matrix; of the experts, one pair of matrices for each of the 6.
    attention = 2 * ((32 + 8) + (8 + 64) + (32 + 24) + (16 + 40) + (48 + 32))
    recurrence = 2 * ((32 + 48) + 2 * (48 + 32) + (48 + 48) + (48 + 32) + (32 + 32))
    shared = 2 * 3 * (32 + 24)
    experts = 2 * 6 * ((32 + 48) + (24 + 32))
    assert sum(p.numel() for p in trained.values()) == 2 * attention + 2 * recurrence + 4 * (shared + experts)

    tokens = draw_tokens(2, 20)
    optimizer = torch.optim.AdamW(trained.values(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = adapted(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    untouched = to_hf(model.state_dict(), model.config)
    base = {name: p for name, p in adapted.named_parameters() if "lora" not in name}
    frozen = base["base_model.model.model.layers.1.linear_attn.A_log"]
    assert torch.equal(frozen, untouched["model.layers.1.linear_attn.A_log"])
