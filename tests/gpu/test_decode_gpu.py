"""Decoding on a GPU: recorded passes against the model as written, and texts against texts."""

from __future__ import annotations

import pytest
import torch

from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling
from hymo.inference.fixed import FixedState
from hymo.inference.recorded import Recorded
from hymo.models import HyMo, build_hymo
from model_helpers import build, draw_tokens, slow_decay

pytestmark = pytest.mark.gpu


def wide(dtype: torch.dtype) -> HyMo:
    """Four blocks of the flagship's widths."""
    config = derive_config(load_config("hymo_750m"), model={"n_layers": 4, "mla_layers": [0, 3], "vocab_size": 512})
    return build_hymo(config, device="cuda").to(dtype).eval()


def small(**changes: object) -> HyMo:
    return slow_decay(build(**changes)).cuda()


def parts(model: HyMo, rows: int, width: int, exact: HyMo) -> list[float]:
    """Relative errors of the hidden states over some passes with ragged reads and rollbacks."""
    state = FixedState.of(model, rows + 1, 300)
    tokens = draw_tokens(rows + 1, 100, vocab=model.config.vocab_size).cuda()
    lengths = torch.tensor([100, 3, 0, 70, *[11] * rows][: rows + 1]).cuda()
    wanted = exact.init_state(rows + 1)
    with torch.inference_mode():
        part = state.rows(0, rows + 1, 100)
        model.decode(tokens, part, lengths)
        state.put(0, part)
        exact.decode(tokens, wanted, lengths)
        wanted = wanted.select(torch.arange(rows, device="cuda"))
        closed = torch.zeros(model.config.vocab_size, device="cuda")
        work = Recorded(model, state, rows, width, closed, draws=False)
        work.record(torch.cuda.graph_pool_handle())
        errors = []
        for place in range(4):
            read = [max(1, width - (row + place) % 3) for row in range(rows)]
            chain = torch.randn(rows, model.config.dim, device="cuda", dtype=work.chain.dtype)
            first = draw_tokens(rows, 1, seed=place)[:, 0].tolist()
            work.replay([[token, count, 1.0, *[0.5] * width] for token, count in zip(first, read, strict=True)], chain)
            new = work.work.tokens.clone()
            counts = torch.tensor(read, device="cuda")
            hidden = exact.decode_hidden(new, wanted, counts, keep_history=width > 1)
            if width > 1:
                kept = [max(1, count - row % 2) for row, count in enumerate(read)]
                work.keep(kept)
                wanted.rollback(torch.tensor(kept, device="cuda"))
            real = torch.arange(width, device="cuda") < counts[:, None]
            got, want = work.hidden[real].double(), hidden[real].double()
            errors.append(float((got - want).norm() / want.norm()))
            assert state.lengths[:rows].tolist() == wanted.lengths.tolist()
    return errors


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 2), (5, 1), (40, 3)])
def test_recorded_passes_equal_the_model(rows: int, width: int) -> None:
    assert max(parts(small(), rows, width, small().double())) < 1e-4
    if rows < 5:
        assert max(parts(wide(torch.float32), rows, width, wide(torch.float64))) < 1e-3


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 3), (64, 1)])
def test_recorded_passes_in_bf16(rows: int, width: int) -> None:
    model = wide(torch.bfloat16)
    exact = wide(torch.bfloat16).double()
    errors = parts(model, rows, width, exact)
    # Where two experts score alike, rounding decides which a token takes: then that token differs, and no other.
    assert sorted(errors)[len(errors) // 2] < 1e-2, errors
    assert max(errors) < 5e-2, errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prompts_read_in_pieces_give_the_full_pass(dtype: torch.dtype) -> None:
    """Rows that start together, whole and after a first piece, and rows that do not."""
    model, exact = wide(dtype), wide(dtype).double()
    tokens = draw_tokens(2, 300, vocab=512).cuda()
    bound = 1e-3 if dtype is torch.float32 else 3e-2
    with torch.inference_mode():
        wanted = exact(tokens)
        for cuts in ((300,), (130, 170), (1, 99, 200)):
            state = model.init_state(2)
            got = torch.cat([model.decode(piece, state) for piece in tokens.split(cuts, 1)], 1).double()
            assert float((got - wanted).norm() / wanted.norm()) < bound
        state = model.init_state(2)
        model.decode(tokens[:, :100], state, torch.tensor([100, 40], device="cuda"))
        rest = torch.stack((tokens[0, 100:300], torch.cat((tokens[1, 40:220], tokens[1, :20]))))
        got = model.decode(rest, state, torch.tensor([200, 180], device="cuda")).double()
        assert float((got[1, :180] - wanted[1, 40:220]).norm() / wanted[1, 40:220].norm()) < bound


@pytest.mark.parametrize("simple", [True, False])
def test_texts_are_those_of_the_model_as_written(simple: bool) -> None:
    model = small(vocab_size=259)
    plain, recorded = Engine(model, ByteTokenizer(), record=False), Engine(model, ByteTokenizer())
    requests = [
        Request(
            tuple([1] + [65 + i for i in range(count)]),
            30 + count,
            Sampling(seed=count, temperature=(1.0, 0.0, 0.7)[count % 3], top_p=1.0 if simple else 0.9),
            n=1 + (count == 2),
            speculative=(False, True, 1)[count % 3] if count < 5 else False,
        )
        for count in (1, 2, 3, 5, 8, 40)
    ]
    for slots in (2, 8):
        for ours, theirs in zip(recorded.run(requests, slots), plain.run(requests, slots), strict=True):
            assert [text.tokens for text in ours] == [text.tokens for text in theirs]


def test_a_failure_to_record_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(small(vocab_size=259), ByteTokenizer())
    monkeypatch.setattr(Recorded, "record", lambda self, pool: 1 / 0)
    with pytest.warns(UserWarning, match="without CUDA graphs: ZeroDivisionError"):
        text = engine.generate("a", 8, Sampling(seed=1))
    assert text.tokens == Engine(engine.model, ByteTokenizer(), record=False).generate("a", 8, Sampling(seed=1)).tokens
