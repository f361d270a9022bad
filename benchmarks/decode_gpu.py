"""Generation on one GPU: the flagship's shape with random weights, drafts of the packaged model, transformers beside.

    python benchmarks/decode_gpu.py --out benchmarks/results/decode-h200.json

Parts (`--parts`): passes, plain, prompt, memory, demo, forced, breakdown, eager, hf. Rows are written as they
come. In `forced` the drafts of the random model are taken as often as those of the packaged model were in `demo`: what
a trained flagship would gain if it drafted as well. Decoding is timed from the first token on, host work included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from environment import environment
from hymo.core.accounting import cache_bytes, count_parameters, state_bytes
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling
from hymo.inference.bench import bench_decode
from hymo.inference.fixed import FixedState
from hymo.inference.recorded import Recorded
from hymo.models import build_hymo

Row = dict[str, Any]
CONTEXT, NEW = 128, 256
LONG = 32_768


class Endless(ByteTokenizer):
    """Bytes, and no token that ends a text: random weights would draw it soon."""

    eos_id = -1


def flagship(record: bool = True) -> Engine:
    """The flagship in bf16 with random weights; only its tables of angles are longer, for long prompts."""
    config = derive_config(load_config("hymo_750m"), model={"max_seq_len": LONG + 4096})
    torch.manual_seed(0)
    engine = Engine(build_hymo(config, device="cuda").to(torch.bfloat16), Endless(), record)
    engine.settle()
    return engine


def prompts(batch: int, length: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, 259, (batch, length - 1), generator=generator)
    return [(1, *row) for row in drawn.tolist()]


def decode(
    engine: Engine,
    batch: int,
    new: int,
    drafts: int = 0,
    temperature: float = 1.0,
) -> Row:
    """Time generation after the first token, in recordings of its own: a larger batch's would serve it."""
    own = Engine(engine.model, engine.tokenizer, engine._recorders is not None)

    def run(stop_after: int | None) -> tuple[float, int, int, float, list[Any]]:
        scheduler = own.scheduler(slots=batch)
        rule = [Sampling(seed=place, temperature=temperature) for place in range(batch)]
        requests = [Request(p, new, r, speculative=drafts) for p, r in zip(prompts(batch, CONTEXT), rule, strict=True)]
        jobs = [scheduler.submit(request) for request in requests]
        texts = [job.choices[0] for job in jobs]
        while any(text.drawn == 0 for text in texts):
            scheduler.step()
        torch.cuda.synchronize()
        before, steps, began = sum(text.drawn for text in texts), 0, time.perf_counter()
        size = scheduler.bytes_used
        while not scheduler.idle:
            scheduler.step()
            steps += 1
            if steps == stop_after:
                for job in jobs:
                    scheduler.cancel(job)
        seconds = time.perf_counter() - began
        return seconds, sum(text.drawn for text in texts) - before, steps, size, texts

    run(8)  # records the passes
    timed = [run(None) for _ in range(3)]
    rates = [tokens / seconds for seconds, tokens, *_ in timed]
    middle = rates.index(statistics.median(rates))
    seconds, _, steps, size, texts = timed[middle]
    stats = [text.speculation for text in texts if text.speculation is not None]
    return {
        "phase": "decode", "batch": batch, "context": CONTEXT, "new_tokens": new, "drafts": str(drafts),
        "temperature": temperature, "tok_per_s": rates[middle], "spread": [min(rates), max(rates)], "repeats": rates,
        "ms_per_pass": 1000 * seconds / steps, "state_bytes": int(size),
        "tokens_per_pass": sum(s.tokens for s in stats) / max(sum(s.passes for s in stats), 1) if stats else 1.0,
        "acceptance": [
            sum(s.accepted[d] for s in stats) / max(sum(s.proposed[d] for s in stats), 1) for d in range(drafts)
        ],
    }  # fmt: skip


def plain(engine: Engine) -> Iterator[Row]:
    for batch, temperature in ((1, 1.0), (64, 1.0), (1, 0.0), (64, 0.0)):
        yield named(decode(engine, batch, NEW, temperature=temperature))


def passes(engine: Engine) -> Iterator[Row]:
    """The device alone: replays of one recorded pass after another, by CUDA events; and seconds to record it, twice."""
    model = engine.model
    closed = torch.zeros(model.config.vocab_size, device="cuda")
    with torch.inference_mode():
        for batch, width in ((1, 1), (1, 3), (16, 1), (16, 3), (64, 1)):
            state = FixedState.of(model, batch, 1024)
            state.lengths.fill_(CONTEXT)
            recording = []
            for _ in range(2):
                torch.cuda.synchronize()
                began = time.perf_counter()
                work = Recorded(model, state, batch, width, closed, draws=True)
                work.record(torch.cuda.graph_pool_handle())
                torch.cuda.synchronize()
                recording.append(time.perf_counter() - began)
            chain = torch.zeros((batch, model.config.dim), dtype=torch.bfloat16, device="cuda")
            work.replay([[5 + 37 * row, width, 1.0, *[0.5] * width] for row in range(batch)], chain)
            torch.cuda.synchronize()
            assert work._graph is not None
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(60):
                work._graph.replay()
            stop.record()
            torch.cuda.synchronize()
            row = {"phase": "pass", "batch": batch, "context": CONTEXT, "drafts": str(width - 1), "tok_per_s": None}
            yield named({**row, "ms_per_pass": start.elapsed_time(stop) / 60, "record_s": recording})


def eager(_: Engine) -> Iterator[Row]:
    engine = flagship(record=False)
    for batch in (1, 64):
        yield named(decode(engine, batch, 48), impl="hymo, kernel by kernel")


def prompt(engine: Engine) -> Iterator[Row]:
    for length, chunk in ((LONG, LONG), (LONG, 16_384), (4096, 16_384)):
        rates = []
        for _ in range(3):
            scheduler = engine.scheduler(slots=1, chunk=chunk)
            scheduler.submit(Request(prompts(1, length)[0], 1, Sampling(seed=0)))
            torch.cuda.synchronize()
            began = time.perf_counter()
            while not scheduler.idle:
                scheduler.step()
            torch.cuda.synchronize()
            rates.append(length / (time.perf_counter() - began))
        row = {"phase": "prefill", "batch": 1, "context": length, "chunk": chunk, "drafts": "0"}
        yield named({**row, "tok_per_s": statistics.median(rates[1:]), "spread": [min(rates[1:]), max(rates[1:])]})


def memory(engine: Engine) -> Iterator[Row]:
    """Bytes of a state with room for 32,768 tokens against the planner's, to the byte."""
    model, config = engine.model, engine.model.config
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with torch.inference_mode():
        state = model.init_state(1, reserve=LONG)
    held = torch.cuda.memory_allocated() - before
    planned = cache_bytes(config, LONG) + state_bytes(config)
    row = {"phase": "memory", "batch": 1, "context": LONG, "drafts": "0", "tok_per_s": None}
    yield named({**row, "state_bytes": state.bytes_used(), "planned_bytes": planned, "allocated_bytes": held})


def demo(_: Engine) -> Iterator[Row]:
    """The packaged model: 1.9 M parameters, trained; prompts from its held-out text."""
    for timing in bench_decode("demo", "cuda", "bfloat16", (1,), CONTEXT, 512, (False, 2)):
        row = {**timing.to_dict(), "impl": "hymo"}
        if timing.phase == "decode":
            yield row


def forced(engine: Engine, acceptance: Sequence[float]) -> Iterator[Row]:
    """Drafts made and judged as usual, then kept by chance as often as `acceptance` says; that costs some launches."""
    judge = Recorded._accept

    def by_chance(work: Recorded) -> None:
        for place in range(work.width - 1):
            kept = work._packet[:, 3 + place] < acceptance[place]
            work.drawn[:, place] = torch.where(kept, work.work.tokens[:, place + 1], work.drawn[:, place])
            work._answer[:, place] = work.drawn[:, place]
        judge(work)

    Recorded._accept = by_chance  # type: ignore[method-assign, assignment]
    try:
        for batch, depth in ((1, len(acceptance)), (1, 1), (16, len(acceptance))):
            row = decode(engine, batch, NEW, depth)
            yield named({**row, "forced": list(acceptance[:depth])})
    finally:
        Recorded._accept = judge  # type: ignore[method-assign]


def breakdown(engine: Engine) -> Iterator[Row]:
    """Where a pass goes: kernels by kind from the profiler, and the time no kernel runs."""
    from torch.profiler import ProfilerActivity, profile

    for batch, drafts in ((1, 0), (64, 0)):
        scheduler = engine.scheduler(slots=batch)
        for place, p in enumerate(prompts(batch, CONTEXT)):
            scheduler.submit(Request(p, NEW, Sampling(seed=place), speculative=drafts))
        for _ in range(30):
            scheduler.step()
        passes = 20
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(passes):
            scheduler.step()
        torch.cuda.synchronize()
        wall = (time.perf_counter() - began) / passes * 1000
        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            for _ in range(passes):
                scheduler.step()
            torch.cuda.synchronize()
        for job in {id(c.job): c.job for c in scheduler._rows}.values():
            scheduler.cancel(job)
        kinds: dict[str, float] = {}
        launches = 0
        for event in watched.key_averages():
            if event.self_device_time_total <= 0:
                continue
            launches += event.count
            kinds[kind(event.key)] = kinds.get(kind(event.key), 0) + event.self_device_time_total / passes / 1000
        row = {"phase": "breakdown", "batch": batch, "context": CONTEXT, "drafts": str(drafts), "tok_per_s": None}
        parts = dict(sorted(kinds.items(), key=lambda item: -item[1]))
        row |= {"ms_per_pass": wall, "kernels_per_pass": launches / passes, "breakdown_ms": parts}
        row["no_kernel_ms"] = wall - sum(parts.values())
        yield named(row)


KINDS = {
    "enter": "gdn: norm, projection, convolution", "project": "projections", "recur": "gdn: recurrence",
    "commit": "gdn: states of kept drafts", "store": "mla: cache", "attend": "mla: attention",
    "gather": "mla: values", "route": "experts: routing", "up": "experts: up", "down": "experts: down",
    "join": "experts: sum", "tally": "softmax and draw", "draw": "softmax and draw", "accept": "softmax and draw",
}  # fmt: skip


def kind(name: str) -> str:
    for start, meaning in KINDS.items():
        if name == start or name.startswith(f"{start}_"):
            return meaning
    lower = name.lower()
    if any(word in lower for word in ("gemm", "gemv", "cutlass", "nvjet", "splitk")):
        return "output head"
    if "memcpy" in lower or "memset" in lower:
        return "copies"
    return "the rest"


def hf(_: Engine) -> Iterator[Row]:
    """A dense Llama of about as many parameters as the flagship uses per token, static cache, compiled."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64256, hidden_size=1024, intermediate_size=2816, num_hidden_layers=26, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=1,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    parameters = sum(p.numel() for p in model.parameters())
    for batch in (1, 64):
        ids = torch.tensor(prompts(batch, CONTEXT), device="cuda")

        def run(new: int, ids: torch.Tensor = ids) -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            with torch.inference_mode():
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                    cache_implementation="static",
                )  # fmt: skip
            torch.cuda.synchronize()
            return time.perf_counter() - began

        run(NEW // 2)
        run(NEW // 2)
        seconds = [run(NEW // 2) for _ in range(2)]
        rates = sorted(batch * (NEW // 2) / s for s in seconds)
        yield {
                "config": f"llama-{parameters / 1e6:.0f}m", "impl": f"hf-llama-{parameters / 1e6:.0f}m",
                "phase": "decode", "batch": batch, "context": CONTEXT, "new_tokens": NEW // 2, "drafts": "0",
                "temperature": 0.0, "tok_per_s": statistics.median(rates), "spread": [rates[0], rates[-1]],
            }  # fmt: skip


def named(row: Row, impl: str = "hymo") -> Row:
    return {"config": "hymo_750m", "impl": impl, **row}


def surviving(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows up to a failure: one part that fails must not take the others' figures along."""
    try:
        yield from rows
    except Exception:
        traceback.print_exc()


def main() -> None:
    every = ["passes", "plain", "prompt", "memory", "demo", "forced", "breakdown", "eager", "hf"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=every, choices=every)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    began = time.perf_counter()
    place = environment()
    try:
        import transformers

        place["transformers"] = transformers.__version__
    except ImportError:
        place["transformers"] = None
    engine = flagship()
    place["active_parameters"] = count_parameters(engine.model.config).active
    print(f"{time.perf_counter() - began:6.1f} s: the model is built", flush=True)
    rows: list[Row] = []
    acceptance = [0.7, 0.63]
    parts: dict[str, Callable[[Engine], Iterator[Row]]] = {
        "passes": passes, "plain": plain, "prompt": prompt, "memory": memory, "demo": demo,
        "forced": lambda e: forced(e, acceptance), "breakdown": breakdown, "eager": eager, "hf": hf,
    }  # fmt: skip
    for name in arguments.parts:
        for row in surviving(parts[name](engine)):
            if name == "demo" and row["batch"] == 1 and row["drafts"] == "2":
                acceptance = row["acceptance"]
            print(f"{time.perf_counter() - began:6.1f} s: {name}", json.dumps(row), flush=True)
            rows.append(row)
            if arguments.out is not None:
                arguments.out.write_text(json.dumps({"environment": place, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
