"""Long texts: the recurrences hold the same at any length, the attention 256 numbers for each token and layer."""

from __future__ import annotations

import pytest
import torch

from hymo.core.accounting import cache_numbers, state_bytes
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling
from hymo.models import DecodeState, HyMo, build_hymo
from hymo.models.state import GDNCache, MLACache


class Endless(ByteTokenizer):
    """Its end of text is an id that the engine never draws."""

    eos_id = ByteTokenizer.pad_id


def long_model(context: int) -> HyMo:
    """Two GDN layers and an MLA layer with the flagship's cache, and small otherwise."""
    shape = {
        "dim": 32,
        "n_layers": 3,
        "mla_layers": [1],
        "max_seq_len": context,
        "n_heads": 4,
        "n_kv_groups": 4,
        "head_dim": 48,
        "v_head_dim": 16,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 16,
        "kv_lora_rank": 128,
        "gdn_d_inner": 64,
        "gdn_chunk_size": 64,
        "n_routed_experts": 2,
        "moe_inter_dim": 16,
    }
    return build_hymo(derive_config(load_config("hymo_tiny"), model=shape, training={"seq_len": 64})).eval()


def check(state: DecodeState, model: HyMo) -> None:
    """What a state of one text holds, by counting."""
    tokens = int(state.lengths)
    constant = [c for c in state.layers if isinstance(c, GDNCache)]
    growing = [c for c in state.layers if isinstance(c, MLACache)]
    fixed = sum(getattr(c, name).numel() * getattr(c, name).element_size() for c in constant for name in c.tensors())
    used = 0
    for tensor in (getattr(c, name)[0].flatten(1) for c in growing for name in c.tensors()):
        used += int((tensor != 0).any(-1).sum()) * tensor.shape[-1]
    print(f"{tokens:>7,} tokens: GDN state {fixed:,} bytes, MLA cache {used / tokens:.0f} numbers per token and layer")
    assert fixed == state_bytes(model.config, bytes_per_element=4)
    assert used == 256 * tokens
    assert all(torch.isfinite(c.state).all() for c in constant)


def read_and_write(read: int, written: int) -> None:
    """A prompt in pieces and a continuation, in the memory that the formulas give."""
    engine = Engine(long_model(read + written), Endless())
    assert cache_numbers(engine.model.config) == 256
    drawn = torch.randint(3, 259, (read - 1,), generator=torch.Generator().manual_seed(0))
    scheduler = engine.scheduler(slots=1)
    job = scheduler.submit(Request((1, *drawn.tolist()), written, Sampling(seed=1)))
    sizes, places = set(), [1, read // 100, read // 10, read // 2, read, read + written // 2]
    while not scheduler.idle:
        scheduler.step()
        sizes.add(scheduler.bytes_used)
        if not scheduler.idle and scheduler._pool.lengths[0] >= places[0]:
            check(scheduler._pool, engine.model)
            places = [place for place in places if place > scheduler._pool.lengths[0]] or [read + written]
    room = read + written + engine.model.config.mtp_depth
    assert sizes == {state_bytes(engine.model.config, 4) + 4 * 256 * room, 0}
    assert job.choices[0].drawn == written


def test_4_000_tokens() -> None:
    read_and_write(3_900, 100)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_100_000_tokens() -> None:
    read_and_write(99_500, 500)
