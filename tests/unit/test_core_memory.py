"""Memory estimates against what autograd really keeps, and against arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.core.memory import LEVELS, LOGIT_CHUNK_ELEMENTS, activation_bytes, optimizer_sizes, training_memory
from hymo.core.throughput import step_work
from hymo.models import build_hymo
from hymo.training.optimizers import build_optimizers


def saved_bytes(config: HyMoConfig, micro_batch: int) -> int:
    """Bytes of all storages that the backward pass of one loss on packed documents holds, parameters excluded."""
    model = build_hymo(config)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    width = config.training.seq_len + 1
    tokens = torch.randint(0, config.model.vocab_size, (micro_batch, width))
    bounds = torch.tensor([n for row in range(micro_batch) for n in (row * width, row * width + 60)] + [tokens.numel()])
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(tokens, cu_seqlens=bounds.to(torch.int32))
    return sum(size for size, _ in held.values())


@pytest.mark.parametrize(
    "changes",
    [{}, {"gdn_recurrence": "gated_delta"}, {"mla_layers": []}, {"mla_layers": list(range(4)), "mtp_depth": 0}],
    ids=["hybrid", "delta", "gdn only", "mla only"],
)
def test_activations_are_within_fifteen_per_cent_of_what_autograd_keeps(changes: dict[str, Any]) -> None:
    config = derive_config(load_config("hymo_demo"), model=changes, training={"seq_len": 512})
    estimate = training_memory(config, micro_batch=2, level="none", on_gpu=False)
    assert estimate.activations + estimate.logits == pytest.approx(saved_bytes(config, 2), rel=0.15)


def test_states_follow_from_the_parameters() -> None:
    config = load_config("hymo_750m")
    sizes, memory = optimizer_sizes(config), training_memory(config, on_gpu=False)
    # Matrices of GDN, MLA and the prediction heads; everything else is AdamW's.
    gdn = 2 * 896 * 1280 + 3 * 1280 * 1280 + 896 * 896
    mla = 224 * 896 + 2048 * 224 + 160 * 896 + 896 * 128 + 896 * 2048
    mtp = 3 * 896 * 2304
    assert sizes.normuon == 24 * gdn + 8 * mla + 2 * mtp
    assert sizes.neurons == 24 * (4 * 1280 + 2 * 896) + 8 * (224 + 2048 + 160 + 896 + 896) + 2 * (2 * 2304 + 896)
    assert sizes.adamw == 1_128_090_624 - sizes.normuon
    assert memory.masters == memory.gradients == 2 * memory.weights == 4 * 1_128_090_624
    assert memory.normuon + memory.adamw == 4 * (sizes.normuon + sizes.neurons) + 8 * sizes.adamw
    assert memory.total == sum(vars(memory).values())


def test_partitions_move_the_states() -> None:
    base = load_config("hymo_tiny")
    everything = 760_384
    adamw = optimizer_sizes(derive_config(base, optimizer={"optimizer_partition": "adamw"}))
    assert (adamw.normuon, adamw.neurons, adamw.adamw) == (0, 0, everything)
    experts = 9 * 3 * 96 * 144
    hybrid = optimizer_sizes(base)
    both = optimizer_sizes(derive_config(base, optimizer={"optimizer_partition": "normuon_all"}))
    assert both.normuon == hybrid.normuon + experts
    assert optimizer_sizes(derive_config(base, optimizer={"muon_normalize": False})).neurons == 0


def test_gradients_are_whole_while_several_passes_are_added_up() -> None:
    whole = 4 * 1_128_090_624
    config = derive_config(load_config("hymo_750m"), training={"dp_size": 4, "grad_accum_steps": 2})
    assert training_memory(config, 4, on_gpu=True).gradients == whole
    assert training_memory(config, 4, 2 * config.training.micro_batch_size, on_gpu=True).gradients == whole // 4
    assert training_memory(config, 8, on_gpu=True).gradients == whole // 8
    for changes in ({"reshard_after_forward": True}, {"reduce_dtype": "bfloat16"}):
        assert training_memory(derive_config(config, training=changes), 4, on_gpu=True).gradients == whole // 4
    assert training_memory(derive_config(config, training={"dp_replicate": 2}), 8, on_gpu=True).gradients == whole // 4


def test_what_runs_as_written_keeps_all_activations() -> None:
    config = load_config("hymo_750m")
    for changes in ({"gdn_kernel": "chunked"}, {"gdn_kernel": "recurrent"}, {"param_dtype": "float32"}):
        changed = derive_config(config, training=changes)
        eager = derive_config(changed, training={"torch_compile_gdn": False})
        assert training_memory(changed, on_gpu=True) == training_memory(eager, on_gpu=True)
    eager = derive_config(config, training={"torch_compile_gdn": False})
    assert training_memory(config, on_gpu=True).activations < training_memory(eager, on_gpu=True).activations


def test_shards_split_masters_and_states() -> None:
    config = load_config("hymo_750m")
    one, four = training_memory(config, 1, on_gpu=False), training_memory(config, 4, on_gpu=False)
    assert four.masters == one.masters // 4
    assert four.weights == one.weights
    replicated = derive_config(config, training={"dp_replicate": 2})
    assert training_memory(replicated, 4, on_gpu=False).masters == one.masters // 2


def test_fp32_needs_no_second_copy_on_one_rank() -> None:
    config = load_config("hymo_demo")
    assert training_memory(config, on_gpu=False).weights == 0
    assert (
        training_memory(config, 2, on_gpu=False).weights == training_memory(config, on_gpu=False).masters
    )  # gathered from the slices
    copies = derive_config(config, training={"dp_replicate": 2})
    assert (
        training_memory(copies, 2, on_gpu=False).weights == training_memory(config, on_gpu=False).masters
    )  # a copy, where the slice is all


def test_checkpointing_saves_memory_in_order() -> None:
    none, selective, full = (
        training_memory(load_config("hymo_750m"), level=level, on_gpu=False).activations for level in LEVELS
    )
    assert none > selective > full


FLAGSHIP = load_config("hymo_750m")
SWIGLU = 2 * (896 + 4 * 2304)
"""bf16: input, gate, its SiLU, up and their product."""


def test_recomputed_parts_of_attention_blocks_are_counted_as_they_run() -> None:
    """As written, whatever the compiler does to the others; only the input stays, and the largest is made again."""
    slope = [activation_bytes(FLAGSHIP, "selective", on_gpu=True, kept=share) for share in (0.0, 1.0)]
    heads = 2 * (3 * 896 * 2 + SWIGLU)
    assert slope[1] - slope[0] == 3 * 896 * 2 + heads  # what is no block's: embedding, final norm, prediction heads
    experts = 2 * 896 * 2 + 3 * 4 * 16 + 3 * (SWIGLU + 896 * 2)
    for placement, part in (("attention", experts), ("all", experts), ("none", 2 * 896 * 2 + SWIGLU)):
        config = derive_config(FLAGSHIP, model={"moe_placement": placement})
        none, selective = (activation_bytes(config, level, on_gpu=True, kept=1.0) for level in ("none", "selective"))
        assert none - selective == 7 * part - 8 * 896 * 2, placement


@pytest.mark.parametrize(("placement", "widths"), [("attention", 3 * 2304), ("all", 3 * 2304), ("none", 2304)])
def test_recomputed_parts_are_computed_twice_forward(placement: str, widths: int) -> None:
    config = derive_config(FLAGSHIP, model={"moe_placement": placement})
    none, selective = (step_work(config, 1, 4, level).matmul_flops for level in ("none", "selective"))
    assert selective - none == pytest.approx(8 * 2 * 3 * 896 * widths * config.training.tokens_per_step)


def test_large_vocabularies_never_hold_all_logits() -> None:
    config = load_config("hymo_750m")
    tokens = 4 * 4096
    heads = 3 * 4 * 896 * (64_256 + tokens)  # fp32 gradients of weight and hidden vectors
    for on_gpu in (False, True):
        assert training_memory(config, on_gpu=on_gpu).logits == heads + 16 * LOGIT_CHUNK_ELEMENTS < 4 * tokens * 64_256
    wide = derive_config(config, training={"micro_batch_size": 16, "grad_accum_steps": 1})
    eighth = 2 * (4 * tokens * 64_256 // 8)  # of all logits, in bf16
    assert training_memory(wide, on_gpu=True).logits == 3 * 4 * 896 * (64_256 + 4 * tokens) + eighth


@pytest.mark.parametrize("shared", [0, 1, 2, 3])
def test_the_optimizers_hold_what_is_planned(shared: int) -> None:
    config = derive_config(
        load_config("hymo_tiny"),
        model={"n_shared_experts": shared, "dim": 64, "moe_inter_dim": 24},
        optimizer={"optimizer_partition": "normuon_all"},
    )
    optimizers = build_optimizers(build_hymo(config), config.optimizer)
    assert optimizers.normuon is not None
    states = optimizers.normuon.state.values()
    planned = optimizer_sizes(config)
    assert sum(state["momentum"].numel() for state in states) == planned.normuon
    assert sum(state["second_moment"].numel() for state in states) == planned.neurons
