"""Long texts: the recurrences hold the same at any length, the attention 256 numbers for each token and layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hymo.core.accounting import cache_numbers, state_bytes
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling
from hymo.models import HyMo, build_hymo
from hymo.models.state import GDNCache, MLACache


def long_model(context: int) -> HyMo:
    """Two GDN layers and two MLA layers with the flagship's cache, and small otherwise."""
    shape = {
        "dim": 32,
        "n_layers": 4,
        "mla_layers": [0, 2],
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


def measured(model: HyMo, places: list[int], block: int) -> Iterator[tuple[int, int, int, int]]:
    """(tokens read, bytes of GDN state, numbers in use and numbers reserved in MLA caches) at some places."""
    state = model.init_state(1)
    tokens = torch.randint(3, 259, (1, places[-1]), generator=torch.Generator().manual_seed(0))
    read = 0
    for place in places:
        while read < place:
            piece = tokens[:, read : min(read + block, place)]
            model.decode_hidden(piece, state)
            read += piece.shape[1]
        constant = [c for c in state.layers if isinstance(c, GDNCache)]
        growing = [c for c in state.layers if isinstance(c, MLACache)]
        fixed = sum(
            getattr(c, name).numel() * getattr(c, name).element_size() for c in constant for name in c.tensors()
        )
        used = 0
        for tensor in (getattr(c, name)[0].flatten(1) for c in growing for name in c.tensors()):
            used += int((tensor != 0).any(-1).sum()) * tensor.shape[-1]
        reserved = sum(getattr(c, name).numel() for c in growing for name in c.tensors())
        assert all(torch.isfinite(c.state).all() for c in constant)
        yield read, fixed, used, reserved


@pytest.mark.parametrize("tokens", [4_000, pytest.param(100_000, marks=[pytest.mark.heavy, pytest.mark.timeout(900)])])
def test_memory_of_reading(tokens: int) -> None:
    model = long_model(tokens)
    assert cache_numbers(model.config) == 256
    rows = list(measured(model, [tokens // 100, tokens // 10, tokens // 2, tokens], 512))
    for read, fixed, used, reserved in rows:
        assert fixed == rows[0][1] == state_bytes(model.config, bytes_per_element=4)
        assert used == 256 * 2 * read
        assert reserved <= 2 * used + 256 * 2 * 64
        print(
            f"{read:>7,} tokens: GDN state {fixed:,} bytes, MLA cache {used / read / 2:.0f} numbers per token and layer"
        )


class Endless(ByteTokenizer):
    """Its end of text is an id that the engine never draws."""

    eos_id = ByteTokenizer.pad_id


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_the_engine_reads_and_writes_100_000_tokens() -> None:
    """A prompt of 99,500 tokens in pieces, then 500 generated ones, in the memory that the formulas give."""
    read, written = 99_500, 500
    engine = Engine(long_model(read + written), Endless())
    drawn = torch.randint(3, 259, (read - 1,), generator=torch.Generator().manual_seed(0))
    scheduler = engine.scheduler(slots=1)
    job = scheduler.submit(Request((1, *drawn.tolist()), written, Sampling(seed=1)))
    sizes = set()
    while not scheduler.idle:
        scheduler.step()
        sizes.add(scheduler.bytes_used)
    room = read + written + engine.model.config.mtp_depth
    assert sizes == {state_bytes(engine.model.config, 4) + 4 * 256 * 2 * room, 0}
    assert job.choices[0].drawn == written
    print(f"{job.total:,} tokens, {max(sizes):,} bytes")
