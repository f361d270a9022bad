"""A batch changes nothing: any company, arrival order, chunk, draft depth or cancellation gives the text got alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.accounting import cache_numbers
from hymo.core.errors import UsageError
from hymo.inference import Engine, Generation, Request, Sampling, Scheduler
from hymo.inference.choice import Choice, Job
from hymo.inference.drafting import PROBE, Costs
from inference_helpers import FewLetters, few_letters_model, slow_generation

LETTERS = FewLetters()
ENGINE = Engine(few_letters_model(), LETTERS)


class EndlessLetters(FewLetters):
    """Its end of text is an id that the engine never draws."""

    eos_id = FewLetters.pad_id


ENDLESS = Engine(ENGINE.model, EndlessLetters())


def make_requests() -> list[Request]:
    """Different in everything that a request can differ in."""
    rules = (
        Sampling(temperature=0),
        Sampling(seed=1),
        Sampling(temperature=0.7, top_p=0.9, seed=2),
        Sampling(temperature=1.3, top_k=4, seed=3),
        Sampling(min_p=0.1, repetition_penalty=1.5, seed=4),
        Sampling(temperature=0, repetition_penalty=1.2),
    )
    lengths = (1, 3, 17, 40, 2, 9)
    drafts = (False, "auto", 1, 2, True, "auto")
    requests = []
    generator = torch.Generator().manual_seed(0)
    for place, (rule, length) in enumerate(zip(rules, lengths, strict=True)):
        prompt = (1, *torch.randint(3, 8, (length - 1,), generator=generator).tolist())
        requests.append(
            Request(
                prompt,
                max_new_tokens=(20, 1, 30, 12, 25, 16)[place],
                sampling=rule,
                n=(1, 3, 1, 2, 1, 1)[place],
                stop=((), ("bab",), (), ("aa", "éa"), ("zz",), ("ba", "abab"))[place],
                alternatives=(0, 2, 5, 0, 1, 8)[place],
                score_prompt=place in (2, 3),
                speculative=drafts[place],
            )
        )
    return [*requests, Request((1, 3, 4, 5), 0, alternatives=2, score_prompt=True)]


REQUESTS = make_requests()


def said(generation: Generation) -> tuple[object, ...]:
    logprobs = tuple(round(value, 9) for value in generation.logprobs)
    tops = tuple(tuple((i, round(value, 9)) for i, value in token.top) for token in generation.details)
    return generation.text, tuple(generation.tokens), generation.finish_reason, logprobs, tops


def prompt_scores(job: Job) -> list[tuple[object, ...]]:
    """Rounded, since another batch rounds differently."""
    return [
        (s.id, None if s.logprob is None else round(s.logprob, 9), [(i, round(v, 9)) for i, v in s.top])
        for s in job.scored
    ]


def alone(request: Request) -> Job:
    scheduler = ENGINE.scheduler(slots=request.n)
    job = scheduler.submit(request)
    while not scheduler.idle:
        scheduler.step()
    return job


ALONE = [alone(request) for request in REQUESTS]


@pytest.mark.parametrize("place", range(len(REQUESTS)))
def test_every_part_of_an_answer_equals_a_slow_reference(place: int) -> None:
    """n, seed, log-probabilities, alternatives, stop strings and the prompt's scores, by full passes."""
    request, job = REQUESTS[place], ALONE[place]
    for index, generation in enumerate(job.generations()):
        tokens, text, reason, logprobs, tops = slow_generation(ENGINE.model, LETTERS, request, index)
        assert generation.tokens == tokens
        assert generation.text == text
        assert generation.finish_reason == reason
        assert generation.logprobs == pytest.approx(logprobs, abs=1e-9)
        assert [[i for i, _ in token.top] for token in generation.details] == [[i for i, _ in top] for top in tops]
        for token, top in zip(generation.details, tops, strict=True):
            assert [v for _, v in token.top] == pytest.approx([v for _, v in top], abs=1e-9)
    if request.score_prompt:
        with torch.no_grad():
            whole = torch.log_softmax(ENGINE.model(torch.tensor([request.prompt]))[0], -1)
        assert [scored.id for scored in job.scored] == list(request.prompt)
        assert job.scored[0].logprob is None
        for place, scored in enumerate(job.scored[1:]):
            best = whole[place, : LETTERS.vocab_size].sort(descending=True)
            assert scored.logprob == pytest.approx(float(whole[place, scored.id]), abs=1e-9)
            assert [i for i, _ in scored.top] == best.indices[: request.alternatives].tolist()
    else:
        assert job.scored == []


def test_the_requests_exercise_what_they_are_for() -> None:
    results = [generation for job in ALONE for generation in job.generations()]
    assert {generation.finish_reason for generation in results} == {"stop", "length"}
    stopped = [job for job in ALONE if job.request.stop and job.choices[0].finish_reason == "stop"]
    assert stopped
    drafted = [generation.speculation for generation in results if generation.speculation]
    assert sum(sum(stats.accepted) for stats in drafted) > 3
    assert any(stats.accepted[0] < stats.proposed[0] for stats in drafted)
    assert len({generation.text for generation in ALONE[1].generations()}) > 1  # n continuations differ


def memory(rows: int, tokens: int) -> int:
    """Most bytes of a decode state of so many rows and tokens in fp64, with room for the drafts of every row."""
    config = ENGINE.model.config
    cache = len(config.mla_layers) * cache_numbers(config) * 8 * (tokens + rows * config.mtp_depth)
    window = 8 * config.gdn_d_inner * (config.gdn_d_conv - 1)
    recurrent = 8 * config.gdn_n_heads * config.gdn_d_state * config.gdn_headdim
    return cache + rows * len(config.gdn_layers) * (recurrent + window)


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_any_arrival_order_gives_what_each_gets_alone(data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(REQUESTS) - 1), min_size=1, max_size=9))
    waits = data.draw(st.lists(st.integers(0, 12), min_size=len(order), max_size=len(order)))
    leaves = data.draw(st.lists(st.none() | st.integers(0, 10), min_size=len(order), max_size=len(order)))
    slots = data.draw(st.integers(3, 9))
    budget = data.draw(st.sampled_from([None, 150]))
    scheduler = ENGINE.scheduler(slots, budget, data.draw(st.sampled_from([1, 7, 512])))
    most = memory(slots, slots * 160 if budget is None else budget)
    jobs: list[Job] = []
    grown: dict[Choice, tuple[str, list[int]]] = {}
    until: list[int | None] = []

    def step() -> None:
        for choice in scheduler.step():
            chunk = choice.take()
            text, tokens = grown.get(choice, ("", []))
            grown[choice] = text + chunk.text, tokens + [token.id for token in chunk.tokens]
        assert scheduler.active <= slots
        assert scheduler.bytes_used <= most
        for place, job in enumerate(jobs):
            left = until[place]
            if left is not None and not job.finished:
                if left == 0:
                    scheduler.cancel(job)
                until[place] = left - 1

    for place, wait, leave in zip(order, waits, leaves, strict=True):
        for _ in range(wait):
            step()
        jobs.append(scheduler.submit(REQUESTS[place]))
        until.append(leave)
    while not scheduler.idle:
        step()
    assert scheduler.bytes_used == 0
    for place, job in zip(order, jobs, strict=True):
        for choice, own in zip(job.choices, ALONE[place].generations(), strict=True):
            generation = choice.generation()
            if generation.finish_reason == "cancelled":
                assert own.tokens[: len(generation.tokens)] == generation.tokens
                continue
            assert said(generation) == said(own)
            assert grown[choice] == (own.text, own.tokens) or job.request.max_new_tokens == 0
        if job.request.score_prompt and job.choices[0].finish_reason != "cancelled":
            assert prompt_scores(job) == prompt_scores(ALONE[place])


def test_streamed_equals_whole_for_every_kind_of_request() -> None:
    for stop, drafts in product(((), ("ba",), ("é", "aa")), (False, 2)):
        sampling = Sampling(seed=5)
        stream = ENGINE.stream("ab", 40, sampling, drafts, stop)
        chunks = list(stream)
        whole = ENGINE.generate("ab", 40, sampling, stop=stop)
        assert "".join(chunk.text for chunk in chunks) == whole.text == stream.generation.text
        assert [token.id for chunk in chunks for token in chunk.tokens] == whole.tokens


def outcomes(rule: Sampling, prompt: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
    """Exact probability of every continuation of at most `length` tokens, by full passes."""
    open_ends, ended = {(): 1.0}, dict[tuple[int, ...], float]()
    for _ in range(length):
        following: dict[tuple[int, ...], float] = {}
        for text, chance in open_ends.items():
            with torch.no_grad():
                logits = ENGINE.model(torch.tensor([[*prompt, *text]]))[0, -1].clone()
            logits[[1, 2]] = -math.inf
            logits[LETTERS.vocab_size :] = -math.inf
            for token, share in enumerate(rule.probabilities(logits).tolist()):
                if share and token == LETTERS.eos_id:
                    ended[text] = ended.get(text, 0.0) + chance * share
                elif share:
                    following[(*text, token)] = chance * share
        open_ends = following
    return {**ended, **open_ends}


RULES = (
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"temperature": 1.4, "top_k": 3},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.2, "min_p": 0.15},
    {"temperature": 0.9, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_drafted_texts_have_the_exact_distribution(rule: dict[str, float]) -> None:
    """Chi-square of three tokens against their enumerated probabilities: p > 0.01 for five seeds and both depths."""
    prompt, count = (1, 3, 5, 4), 400
    exact = outcomes(Sampling(**rule), prompt, 3)  # type: ignore[arg-type]
    assert sum(exact.values()) == pytest.approx(1)
    frequent = [text for text, chance in exact.items() if chance * count >= 5]
    rest = 1 - sum(exact[text] for text in frequent)
    accepted = 0
    for seed in range(5):
        sampling = Sampling(**rule, seed=seed)  # type: ignore[arg-type]
        request = Request(prompt, 3, sampling, n=count)
        plain = ENGINE.run([request], slots=count)[0]
        for depth in (1, 2):
            drafted = ENGINE.run([replace(request, speculative=depth)], slots=count)[0]
            assert [said(generation) for generation in drafted] == [said(generation) for generation in plain]
            accepted += sum(sum(g.speculation.accepted) for g in drafted if g.speculation)
        found = Counter(tuple(generation.tokens) for generation in plain)
        assert set(found) <= set(exact)
        cells = [(found[text], count * exact[text]) for text in frequent]
        if rest * count > 1:
            cells.append((count - sum(n for n, _ in cells), count * rest))
        statistic = sum((n - wanted) ** 2 / wanted for n, wanted in cells)
        half = torch.tensor([(len(cells) - 1) / 2, statistic / 2], dtype=torch.float64)
        p = float(torch.special.gammaincc(half[0], half[1]))
        assert len(cells) >= 5
        assert p > 0.01, (seed, p, statistic, len(cells))
    assert accepted > 100


def running(scheduler: Scheduler) -> list[int]:
    return [choice.drawn for choice in scheduler._rows[: scheduler._running]]


def test_a_long_prompt_delays_the_others_by_a_piece_a_pass_and_none_overtakes() -> None:
    scheduler = ENGINE.scheduler(slots=4, chunk=8)
    first = scheduler.submit(Request((1, 3), 40, Sampling(seed=1, temperature=0.01)))
    scheduler.step()
    long = scheduler.submit(Request((1, *[3, 4, 5] * 30), 4))
    short = scheduler.submit(Request((1, 4), 4))
    before = first.choices[0].drawn
    for step in range(1, 12):
        assert [job.read for job in (long, short)] == [min(91, 8 * (step - 1)), 0]
        scheduler.step()
        assert first.choices[0].finished or first.choices[0].drawn == before + step
    scheduler.step()
    assert (long.read, short.read) == (91, 2)


def test_prompts_of_one_size_are_read_together() -> None:
    scheduler = ENGINE.scheduler(slots=8)
    jobs = [scheduler.submit(Request((1, *[3] * place), 5)) for place in range(6)]
    scheduler.step()
    assert all(job.choices[0].drawn or job.finished for job in jobs)


def test_rows_and_tokens_are_bounded_and_free_rows_are_used_again() -> None:
    scheduler = ENGINE.scheduler(slots=3, token_budget=60)
    jobs = [scheduler.submit(Request((1, 3, 4), 17, Sampling(seed=place))) for place in range(5)]
    most = 0
    while not scheduler.idle:
        scheduler.step()
        most = max(most, scheduler.active)
        longest = max([choice.job.total for choice in scheduler._rows], default=0)
        assert scheduler.active * longest <= 60
    assert most == 3
    assert all(job.finished for job in jobs)
    wide = ENGINE.scheduler(slots=2, token_budget=30)
    for request, says in (
        (Request((1,), 10, n=3), "n: at most 2"),
        (Request((1,), 15, n=2), "budget of 30"),
        (Request((1,), 160), "exceed the context of 160"),
        (Request((1,), 0), "max_new_tokens"),
        (Request((), 5), "prompt"),
        (Request((1, 8), 5), "token 8"),
        (Request((1,), 5, stop=("",)), "stop"),
        (Request((1,), 5, stop=("\ud800",)), "stop"),
        (Request((1,), 5, alternatives=21), "logprobs"),
        (Request((1,), 5, speculative=3), "speculative"),
        (Request((1,), 5, n=0), "n: must"),
    ):
        with pytest.raises(UsageError, match=says):
            wide.submit(request)
    assert wide.idle
    with pytest.raises(UsageError, match="slots"):
        ENGINE.scheduler(slots=0)


def test_memory_of_a_long_text_is_given_back_while_others_go_on() -> None:
    scheduler = Scheduler(ENGINE.model, ENDLESS.tokenizer, slots=8)
    short = scheduler.submit(Request((1, 3), 30, Sampling(seed=1)))
    scheduler.step()
    small = scheduler.bytes_used
    assert small == memory(1, 32)
    long = scheduler.submit(Request((1, *[3] * 140), 5, Sampling(seed=1), n=3))
    scheduler.step()
    assert scheduler.bytes_used == memory(4, 4 * 146)
    while not long.finished:
        scheduler.step()
    assert scheduler.bytes_used == small
    while not scheduler.idle:
        scheduler.step()
    assert scheduler.bytes_used == 0
    wanted = ENDLESS.run([short.request])[0][0]
    assert short.choices[0].generation().tokens == wanted.tokens


def test_no_seed_differs_and_a_seed_is_its_own() -> None:
    free = ENDLESS.run([Request((1, 3), 30, n=4), Request((1, 3), 30)])
    assert len({generation.text for results in free for generation in results}) == 5
    one = ENDLESS.generate("a", 30, Sampling(seed=3))
    several = ENDLESS.run([Request((1, 3), 30, Sampling(seed=3), n=4)])[0]
    assert several[0].text == one.text
    assert len({generation.text for generation in several}) == 4


def test_drafting_switches_itself_off_where_it_does_not_pay_and_tries_again() -> None:
    """Measured costs decide: where drafts make a pass ten times dearer, only probes draft; the text is the same."""
    request = Request((1, 3, 4), 90, Sampling(seed=11, min_p=0.05), speculative="auto")
    for dear in (False, True):
        costs = Costs()
        for depth in range(3):
            for _ in range(3):
                costs.note(1, depth, 1e6 * (1 + (9 if dear else 1e-6) * depth))
        scheduler = Scheduler(ENGINE.model, ENDLESS.tokenizer, 1, costs=costs)
        costs.note = lambda rows, depth, seconds: None  # type: ignore[method-assign]
        job = scheduler.submit(request)
        while not scheduler.idle:
            scheduler.step()
        (generation,) = job.generations()
        stats = generation.speculation
        assert stats is not None
        if dear:
            assert stats.proposed[0] == stats.passes // PROBE == 1
        else:
            assert stats.proposed[0] > stats.passes // 2
        plain = ENDLESS.run([replace(request, speculative=False)])[0][0]
        assert generation.tokens == plain.tokens
