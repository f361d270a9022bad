"""Recorded decoding passes, their kernels in Triton's interpreter on the CPU, against the model as written.

The interpreter must be chosen before Triton is imported, and for the whole process. So under plain pytest this file
holds one test, which runs the file again with TRITON_INTERPRET=1; there it holds the tests proper.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from decode_oracle import Written, passes, wrong
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling
from hymo.inference.fixed import FixedState
from hymo.inference.recorded import Recorded, Recorder, Recorders, obstacle
from hymo.models.rope import apply_rope
from hymo.models.state import DecodeState, MLACache
from kernel_helpers import INTERPRETED, run_interpreted
from model_helpers import build, close, draw_tokens, slow_decay

if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    @pytest.mark.parametrize("error", ["", "choice", "expert"])
    def test_a_tie_is_no_error_and_an_error_is_no_tie(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """bf16, by the model as written: of several hundred choices some are ties, and each counts as what it is."""
        monkeypatch.setattr("hymo.inference.fused.FusedPass", Written)
        model = build().to(torch.bfloat16)
        exact = copy.deepcopy(model).double()
        last = model.mixtures()[-1]
        with torch.no_grad():
            if error == "choice":
                last.bias[1] += 0.02
            elif error == "expert":
                last.w2[[1, 2]] = last.w2[[2, 1]]
        figures = passes(model, exact, 96, 1, prompt=20)
        found = wrong(figures, 2e-2, 2**0.5 * 2e-2)  # 32 numbers a token: the worst of 384 tokens errs by 1.4e-2
        assert bool(found) == bool(error), (found, figures)
        assert sum(one.others for one in figures) > 0
        assert (max(one.choice for one in figures) > 1) == (error == "choice")

    def test_without_a_gpu_nothing_is_recorded_and_nothing_is_said(recwarn: pytest.WarningsRecorder) -> None:
        if torch.cuda.is_available():
            return
        model = build(vocab_size=259)
        assert obstacle(model) == "Triton kernels need a CUDA device, not cpu"
        assert Recorders.of(model) is None
        assert not recwarn.list

else:
    from hymo.inference import fused

    SMALL: dict[str, Any] = {"n_layers": 2, "mla_layers": [1]}
    VARIANTS: list[dict[str, Any]] = [
        {},
        {"rope_pairing": "interleaved", "router_score": "softmax", "route_scale": 1.7, "n_activated_experts": 3},
        {"qk_rope_head_dim": 0, "rope_ratio": 0.0, "n_shared_experts": 0, "gdn_rope_target": "none", "gdn_d_conv": 2},
    ]

    def caches(state: DecodeState, rows: int) -> list[Tensor]:
        """What the first rows hold, as far as they have read."""
        found = [state.lengths[:rows]]
        for cache in state.layers:
            for name in cache.tensors():
                tensor = getattr(cache, name)[:rows]
                if isinstance(cache, MLACache):
                    found += [tensor[row, : int(n)] for row, n in enumerate(state.lengths[:rows])]
                else:
                    found.append(tensor)
        return found

    @pytest.mark.parametrize(
        ("variant", "rows", "width"), [(0, 1, 1), (0, 2, 3), (0, 9, 2), (1, 1, 1), (1, 1, 2), (2, 2, 1)]
    )
    def test_a_pass_is_that_of_the_model(variant: int, rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ragged rows, one that reads nothing, drafts taken back, and a row behind that must stay as it is."""
        for tiles in (fused.ONE_TOKEN, fused.FEW_TOKENS, fused.MORE_TOKENS):
            monkeypatch.setitem(tiles, "BN", 32)  # the interpreter's time goes by programs
        model = slow_decay(build(**SMALL, **VARIANTS[variant]))
        tokens, lengths = draw_tokens(rows + 1, 20), torch.tensor([17, 3, 0, *[9] * rows][: rows + 1])
        state, wanted = FixedState.of(model, rows + 1, 60), model.init_state(rows + 1)
        part = state.rows(0, rows + 1, 20)
        model.decode(tokens, part, lengths)
        state.put(0, part)
        behind = [x[-1:].clone() for x in (state.lengths, state.states[0], state.windows[0])]
        model.decode(tokens, wanted, lengths)
        wanted = wanted.select(torch.arange(rows))
        work = Recorded(model, state, rows, width, torch.zeros(model.config.vocab_size), draws=False)
        work.record(None)
        chain = torch.randn(rows, model.config.dim, generator=torch.Generator().manual_seed(1))
        for place in range(2):
            read = [[width, 0 if place else 1, *[width] * rows][row] for row in range(rows)]
            packet = [[float(7 + row + place), count, 1.0, *[0.5] * width] for row, count in enumerate(read)]
            with torch.no_grad():
                work.replay(packet, chain)
                hidden = model.decode_hidden(work.work.tokens, wanted, torch.tensor(read), keep_history=width > 1)
                if width > 1:
                    kept = [min(count, (2 - row) % 3) for row, count in enumerate(read)]
                    work.keep(kept)
                    wanted.rollback(torch.tensor(kept))
            for row, count in enumerate(read):
                close(work.hidden[row, :count], hidden[row, :count], 1e-5)
            for mine, theirs in zip(caches(state, rows), caches(wanted, rows), strict=True):
                close(mine, theirs, 1e-5)
        for x, kept_row in zip((state.lengths, state.states[0], state.windows[0]), behind, strict=True):
            assert torch.equal(x[-1:], kept_row)

    @pytest.mark.parametrize("error", ["", "choice", "expert", "commit"])
    def test_the_oracle_of_the_gpu_finds_errors(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What tests/gpu/test_decode_gpu.py judges by: a wrong expert, or a draft not taken back, must not pass."""
        for tiles in (fused.ONE_TOKEN, fused.FEW_TOKENS, fused.MORE_TOKENS):
            monkeypatch.setitem(tiles, "BN", 32)
        model, exact = (slow_decay(build(**SMALL)) for _ in range(2))
        with torch.no_grad():
            if error == "choice":
                model.mixtures()[0].bias[3] += 0.5
            elif error == "expert":
                w2 = model.mixtures()[0].w2
                w2[[0, 1]] = w2[[1, 0]]
            elif error == "commit":
                commit = fused.FusedPass.commit

                def all_of_them(work: fused.FusedPass) -> None:
                    kept = work.keep.clone()
                    work.keep.copy_(work.read)
                    commit(work)
                    work.state.lengths[: work.rows] += kept - work.keep

                monkeypatch.setattr(fused.FusedPass, "commit", all_of_them)
        found = wrong(passes(model, exact.double(), 2, 2, count=1, prompt=12), 1e-4, 1e-4)
        named = {"choice": "choices", "expert": "hidden states", "commit": "state"}.get(error, "")
        assert bool(found) == bool(error)
        assert any(f": {named} " in line for line in found) or not error, found

    @pytest.mark.parametrize("patience", [0, 3, 512])
    def test_texts_are_those_of_the_model_as_written(patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drawn within the pass and outside it, drafted and not, joining and leaving, alone and in company.

        Each in a pass of its own size, in a larger one all along, and in one after the other while a pass is in flight.
        """
        monkeypatch.setattr(fused, "FusedPass", Written)
        monkeypatch.setattr("hymo.inference.recorded._PATIENCE", patience)
        model = slow_decay(build(vocab_size=259, **SMALL))
        plain, recorded = Engine(model, ByteTokenizer(), record=False), Engine(model, ByteTokenizer())
        for drafts, top_p in ((False, 1.0), (2, 1.0), (1, 0.9)):
            requests = [
                Request(
                    (1, *range(65, 65 + count)),
                    3 + 2 * count,
                    Sampling(seed=count, temperature=(1.0, 0.0, 0.7)[count % 3], top_p=top_p),
                    n=1 + (count == 2),
                    speculative=drafts if count != 5 else False,
                    stop=("\x00",),
                )
                for count in (1, 2, 3, 5, 4)
            ]
            for ours, theirs in zip(recorded.run(requests, 3), plain.run(requests, 3), strict=True):
                for mine, other in zip(ours, theirs, strict=True):
                    assert mine.tokens == other.tokens
                    assert mine.logprobs == pytest.approx(other.logprobs, abs=1e-5)
                    assert [t.drafted for t in mine.details] == [t.drafted for t in other.details]

    def test_what_is_rarely_asked_for_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hymo.inference.recorded._PATIENCE", 8)
        model = slow_decay(build(vocab_size=259, **SMALL))
        recorder = Recorder(model, torch.zeros(259, dtype=torch.bool))
        recorder.make_room(4, 32, 2, 4, 4096, 0)
        sizes = lambda work: (work.rows, work.width, work.draws)  # noqa: E731
        assert sizes(recorder.of(3, 3, True)) == (4, 3, True)
        assert sizes(recorder.of(1, 1, False)) == (1, 1, False)  # nothing larger of its kind
        found = [sizes(recorder.of(2, 2, True)) for _ in range(10)]
        assert found == [(4, 3, True)] * 8 + [(2, 2, True)] * 2
        assert sizes(recorder.of(1, 1, True)) == (2, 2, True)  # the smallest that will do

    def test_a_text_that_ends_while_the_next_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
        """It stops by a string, or is cancelled: its row is free, the others go on as if nothing had been."""
        monkeypatch.setattr(fused, "FusedPass", Written)
        engine = Engine(slow_decay(build(vocab_size=259, **SMALL)), ByteTokenizer())
        alone = [engine.generate("ab", 30, Sampling(seed=seed)) for seed in range(3)]
        at = alone[1].tokens[4]
        scheduler = engine.scheduler(slots=3)
        jobs = [scheduler.submit(engine.request("ab", 30, Sampling(seed=seed))) for seed in range(3)]
        for _ in range(5):
            scheduler.step()
        assert scheduler._flight is not None
        monkeypatch.setattr(engine.tokenizer, "eos_id", at)
        scheduler.cancel(jobs[2])
        while not scheduler.idle:
            scheduler.step()
        assert scheduler._flight is None
        first, second, third = (job.choices[0].generation() for job in jobs)
        assert (first.tokens, second.tokens) == (ended(alone[0].tokens, at, 5), ended(alone[1].tokens, at, 5))
        assert third.finish_reason == "cancelled"
        assert third.tokens == alone[2].tokens[: len(third.tokens)]

    def ended(tokens: list[int], at: int, known: int) -> list[int]:
        """A text that ends at the first `at` after the tokens that are known already."""
        rest = tokens[known:]
        return tokens[:known] + (rest[: rest.index(at)] if at in rest else rest)

    @pytest.mark.parametrize(("vocabulary", "cap", "width"), [(3000, 15.0, 2), (259, 0.0, 1)])
    def test_drawing_inverts_the_distribution_function(vocabulary: int, cap: float, width: int) -> None:
        from hymo.kernels import triton_draw

        torch.manual_seed(0)
        temperatures = torch.tensor([1.0, 0.0, 0.5, 3.0], dtype=torch.float64)
        rows, block = len(temperatures), 1024
        raw, closed = torch.randn(rows * width, vocabulary) * 8, torch.zeros(vocabulary)
        closed[[1, 2, *range(vocabulary * 2 // 3, vocabulary)]] = -torch.inf  # whole blocks among them
        uniforms = torch.rand(rows, width, dtype=torch.float64)
        uniforms[0, 0], uniforms[2, 0] = 0.0, 1 - 1e-7
        blocks = -(-vocabulary // block)
        kinds = (torch.float32, torch.int32, torch.float32, torch.float64)
        marks = [torch.empty((rows * width, blocks), dtype=kind) for kind in kinds]
        drawn, answer = torch.zeros((rows, width), dtype=torch.int64), torch.zeros((rows, 2 * width + 1)).double()
        sizes = {"BLOCK": block, "CAP": cap}
        triton_draw.tally[(blocks, rows * width)](raw, closed, temperatures, *marks, vocabulary, width, **sizes)
        triton_draw.draw[(rows * width,)](
            raw, closed, temperatures, uniforms, *marks, drawn, answer, vocabulary, width, answer.stride(0),
            BLOCKS=blocks, BB=1 << (blocks - 1).bit_length(), **sizes,
        )  # fmt: skip
        logits = ((cap * torch.tanh(raw / cap) if cap else raw) + closed).view(rows, width, -1)
        for row, temperature in enumerate(temperatures.tolist()):
            wanted = Sampling(temperature=temperature).draw(logits[row], uniforms[row])
            assert torch.equal(drawn[row], wanted)
            logprobs = torch.log_softmax(logits[row], -1).gather(-1, wanted[:, None])[:, 0]
            close(answer[row, width : 2 * width], logprobs, 1e-5)
            assert answer[row, :width].tolist() == wanted.tolist()

    def test_a_failure_to_record_falls_back_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: Recorded, pool: Any) -> None:
            raise RuntimeError("no room for a graph\nand a long trace")

        monkeypatch.setattr(Recorded, "record", fail)
        model = build(vocab_size=259)
        engine = Engine(model, ByteTokenizer())
        with pytest.warns(UserWarning, match="without CUDA graphs: RuntimeError: no room for a graph$") as caught:
            texts = [engine.generate("a", 8, Sampling(seed=seed)).tokens for seed in (1, 2)]
        assert len(caught) == 1
        plain = Engine(model, ByteTokenizer(), record=False)
        assert texts == [plain.generate("a", 8, Sampling(seed=seed)).tokens for seed in (1, 2)]

    def test_a_failure_to_record_while_a_pass_is_in_flight_costs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: Recorded, pool: Any) -> None:
            if self.rows == 1:
                raise RuntimeError("no room for a second graph")

        monkeypatch.setattr(fused, "FusedPass", Written)
        monkeypatch.setattr(Recorded, "record", fail)
        monkeypatch.setattr("hymo.inference.recorded._PATIENCE", 3)
        model = slow_decay(build(vocab_size=259, **SMALL))
        plain, engine = Engine(model, ByteTokenizer(), record=False), Engine(model, ByteTokenizer())
        requests = [engine.request("ab", new, Sampling(seed=new)) for new in (6, 20)]
        with pytest.warns(UserWarning, match="without CUDA graphs: RuntimeError: no room for a second graph$"):
            texts = engine.run(requests, 2)
        assert [text.tokens for (text,) in texts] == [text.tokens for (text,) in plain.run(requests, 2)]

    def test_models_that_the_kernels_are_not_made_for_are_named() -> None:
        assert obstacle(build()) == ""
        assert obstacle(build(gdn_recurrence="gated_delta")) == "the kernels are made for gdn_recurrence gated_linear"
        assert obstacle(build(double=True)) == "the kernels take float32 and bfloat16, not torch.float64"

    @pytest.mark.parametrize(("shape", "angles"), [((2, 5, 3, 12), (2, 5, 1, 6)), ((2, 5, 3, 8), (5, 1, 4))])
    @pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
    def test_one_kernel_rotates(shape: tuple[int, ...], angles: tuple[int, ...], pairing: str) -> None:
        from hymo.kernels.triton_rope import rotate

        x = torch.randn(*shape[:3], shape[3] + 5)[..., 2 : 2 + shape[3]]  # strided
        cos, sin = torch.randn(angles), torch.randn(angles)
        close(rotate(x, cos, sin, pairing == "half_split"), apply_rope(x, (cos, sin), pairing), 1e-6)
