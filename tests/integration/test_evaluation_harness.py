"""The harness's requests on a HyMo model, against plain loops over its logits; no connection is ever opened."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from lm_eval.api.instance import Instance

from evaluation_fixtures import block_sockets, write_rows, write_tasks
from hymo.cli import main
from hymo.core.errors import UsageError
from hymo.data import ByteTokenizer, EvaluationWindows, load_tokenizer, open_split, sample_paths
from hymo.data.bpe import BPETokenizer
from hymo.data.tokenizer import Tokenizer
from hymo.evaluation.harness import HymoLM
from hymo.evaluation.hashes import weights_hash
from hymo.evaluation.hf_model import hf_subject
from hymo.evaluation.perplexity import evaluate
from hymo.evaluation.task_data import TaskData
from hymo.evaluation.tasks import OpenTasks
from hymo.inference import Engine, Sampling
from hymo.models import HyMo
from model_helpers import build

TOK = ByteTokenizer()
CONTEXT = 320
CHOICES = ["endings", "words", "sums"]


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        block_sockets(patch)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def model() -> HyMo:
    return build(vocab_size=259, max_seq_len=CONTEXT, n_layers=2, mla_layers=[1])


def adapter(model: HyMo, batch_size: int = 8, **options: Any) -> HymoLM:
    return HymoLM(model, TOK, **{"window": 64, "batch_size": batch_size, **options})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A small trained tokenizer."""
    out = tmp_path_factory.mktemp("bpe") / "bpe"
    assert (
        main(["tokenizer", "train", str(sample_paths()["validation"]), "--out", str(out), "--vocab-size", "320"]) == 0
    )
    return load_tokenizer(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    write_tasks(path)
    return path


@pytest.fixture(scope="module")
def ran(model: HyMo, folder: Path) -> tuple[OpenTasks, dict[str, Any]]:
    """All local tasks, run once."""
    opened = OpenTasks([*CHOICES, "problems", "documents"], TaskData(folders=[folder]), folder)
    return opened, opened.run(adapter(model), seed=1)


@torch.no_grad()
def direct(model: HyMo, context: str, continuation: str) -> tuple[float, bool]:
    """Log-probability of a continuation and whether it is greedy, one forward pass and a loop over positions."""
    before = [1, *TOK.encode(context).tolist()]
    after = TOK.encode(continuation).tolist()
    logits = model(torch.tensor([[*before, *after[:-1]]]))[0].double()
    total, greedy = 0.0, True
    for place, token in enumerate(after, len(before) - 1):
        row = logits[place]
        total += float(row[token]) - math.log(sum(math.exp(float(x)) for x in row))
        greedy &= int(row.argmax()) == token
    return total, greedy


def request(kind: str, *arguments: Any) -> Instance:
    return Instance(kind, {}, arguments, 0, ("by hand", 0, 1))


def ask(lm: HymoLM, pairs: list[tuple[str, str]]) -> list[tuple[float, bool]]:
    return lm.loglikelihood([request("loglikelihood", *pair) for pair in pairs])


@pytest.fixture(scope="module")
def asked(ran: tuple[OpenTasks, dict[str, Any]]) -> dict[tuple[str, str], tuple[float, bool]]:
    """Every multiple-choice request and its answer."""
    instances = [i for task in ran[0].tasks.values() for i in task.instances if i.request_type == "loglikelihood"]
    assert len(instances) == 100 * 4 * 3
    return {instance.args: instance.resps[0] for instance in instances}


def test_loglikelihoods_equal_a_direct_computation(model: HyMo, asked: dict[Any, Any]) -> None:
    drawn = random.Random(0).sample(sorted(asked), 150)
    for pair in drawn:
        total, greedy = direct(model, *pair)
        assert asked[pair][0] == pytest.approx(total, rel=2e-6)
        assert asked[pair][1] == greedy
    assert len({round(total, 6) for total, _ in asked.values()}) > 1000


def test_no_request_depends_on_the_others(model: HyMo, asked: dict[Any, Any]) -> None:
    pairs = list(asked)
    random.Random(1).shuffle(pairs)
    assert ask(adapter(model), pairs) == [asked[pair] for pair in pairs]  # to the last bit
    some = pairs[:200]
    for batch_size in (1, 32):
        for (total, greedy), pair in zip(ask(adapter(model, batch_size), some), some, strict=True):
            assert total == pytest.approx(asked[pair][0], rel=1e-6)
            assert greedy == asked[pair][1]


def test_greedy_is_what_greedy_decoding_gives(model: HyMo) -> None:
    engine = Engine(model, TOK)
    found = 0
    contexts = [chr(97 + i % 26) * (1 + i % 3) + " the" for i in range(60)]
    for context in contexts:
        text = engine.generate(context, 3, Sampling(temperature=0)).text
        if not text.isascii() or text[:1].isspace() or len(text) < 3:
            continue
        found += 1
        wrong = text[:-1] + ("x" if text[-1] != "x" else "y")
        assert [greedy for _, greedy in ask(adapter(model), [(context, text), (context, wrong)])] == [True, False]
    assert found >= 3


def test_scores_follow_from_the_requests(ran: tuple[OpenTasks, dict[str, Any]]) -> None:
    opened, results = ran
    hits = []
    for name in ("sums_lengths", "sums_letters"):
        by_item: dict[int, list[Any]] = {}
        for instance in opened.tasks[name].instances:
            by_item.setdefault(instance.doc_id, []).append(instance)
        for group in by_item.values():
            totals = [instance.resps[0][0] for instance in sorted(group, key=lambda instance: instance.idx)]
            hits.append(float(totals.index(max(totals)) == group[0].doc["answer"]))
    group = results["sums"]
    mean = sum(hits) / 100
    assert group.members == ["sums_lengths", "sums_letters"]
    assert group.metrics["acc,none"].value == pytest.approx(mean)
    assert group.metrics["acc,none"].stderr == pytest.approx(math.sqrt(mean * (1 - mean) / 99))
    assert (group.n_items, group.shots, group.truncated) == (100, 1, 0)
    assert results["endings"].metrics["acc,none"].higher_is_better
    assert set(results["words"].metrics) == {"acc,none", "acc_norm,none"}
    prompt = opened.tasks["words"].instances[0].args[0]
    assert prompt.count("Question: ") == 3  # two examples


@pytest.mark.parametrize("batch_size", [1, 5])
def test_rolling_likelihoods_are_the_bits_per_byte_of_hymo_eval(model: HyMo, dataset: Path, batch_size: int) -> None:
    split = open_split(dataset, "validation", TOK)
    for stride in (None, 40):
        windows = EvaluationWindows(split, 64, stride=stride, max_bytes=3000, tokenizer=TOK)
        measured = evaluate(model, windows, 4)
        lm = adapter(model, batch_size, stride=stride)
        nats = lm.score_documents(windows.documents(TOK))
        assert -sum(nats) == pytest.approx(measured.nats, rel=1e-6)
        assert -sum(nats) / math.log(2) / windows.n_bytes == pytest.approx(measured.bits_per_byte, rel=1e-6)


def test_rolling_tasks_report_bits_per_byte(model: HyMo, ran: tuple[OpenTasks, dict[str, Any]], folder: Path) -> None:
    texts = [row["text"] for row in datasets.load_dataset("json", data_files=str(folder / "documents.jsonl"))["train"]]
    nats = 0.0
    for text in texts:
        for start in range(0, len(text), 64):
            before = "" if start == 0 else text[start - 1]
            part = text[start : start + 64]
            nats += direct(model, before, part)[0] if start == 0 else _inside(model, before + part)
    expected = -nats / math.log(2) / sum(map(len, texts))
    assert ran[1]["documents"].metrics["bits_per_byte,none"].value == pytest.approx(expected, rel=1e-6)


@torch.no_grad()
def _inside(model: HyMo, text: str) -> float:
    """Log-probability of all but the first token of a later window, which begins without bos."""
    ids = torch.from_numpy(TOK.encode(text))
    return float(torch.log_softmax(model(ids[None, :-1])[0], -1).gather(-1, ids[1:, None]).sum())


def test_what_does_not_fit_is_cut_on_the_left_and_counted(model: HyMo) -> None:
    lm = adapter(model)
    context, answer = "".join(random.Random(3).choices("abcdefgh ", k=500)).strip() + ".", " yes"
    fits = context[-(CONTEXT - len(answer)) :]  # and bos before it; the last token is no input
    exact, short = fits, fits[1:]
    cut, whole, smaller = ask(lm, [(context, answer), (exact, answer), (short, answer)])
    assert lm.counts.truncated == {"by hand": 1}
    assert whole == pytest.approx(direct(model, exact, answer), rel=2e-6)
    assert smaller == pytest.approx(direct(model, short, answer), rel=2e-6)
    assert cut == whole

    long = "".join(random.Random(4).choices("abcdefgh ", k=CONTEXT + 30))
    ((total, _),) = ask(lm, [("", "x" + long[1:])])
    parts = direct(model, "", "x" + long[1:CONTEXT])[0] + _inside(model, long[CONTEXT - 1 :])
    assert total == pytest.approx(parts, rel=2e-6)
    assert lm.counts.truncated == {"by hand": 2}
    empty = ask(lm, [("", "ab"), (" ", "ab"), ("ab", "")])
    assert empty[0] == pytest.approx(direct(model, "", "ab"), rel=2e-6)
    assert empty[1] == pytest.approx(direct(model, "", " ab"), rel=2e-6)
    assert empty[2] == (0.0, True)


def test_texts_end_at_stop_strings_and_limits(model: HyMo) -> None:
    lm, engine = adapter(model), Engine(model, TOK)
    whole = engine.generate("Once", 40, Sampling(temperature=0)).text
    stop = whole[10:13]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"until": [], "max_gen_toks": 40}, whole),
        ({"until": stop, "max_gen_toks": 40, "do_sample": False, "temperature": 0.7}, whole[: whole.find(stop)]),
        ({"until": ["", "never there", stop], "max_new_tokens": 40}, whole[: whole.find(stop)]),
        ({"until": [], "max_gen_toks": 5, "top_k": None}, engine.generate("Once", 5, Sampling(temperature=0)).text),
    ]
    for options, expected in cases:
        assert lm.generate_until([request("generate_until", "Once", options)]) == [expected]
    with pytest.raises(UsageError, match="num_beams"):
        lm.generate_until([request("generate_until", "Once", {"num_beams": 4})])


def test_drawn_texts_depend_on_seed_and_context_alone(model: HyMo) -> None:
    lm = adapter(model)
    options = {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 1.0, "top_p": 0.9}
    requests = [request("generate_until", text, options) for text in ("Once", "Twice", "Once")]
    first, other, again = lm.generate_until(requests)
    assert first != again  # two draws for the same context
    assert lm.generate_until([requests[1], requests[0]]) == [other, first]
    lm.seed += 1
    assert lm.generate_until(requests[:2]) != [first, other]


def test_prompts_that_are_too_long_for_a_text_are_cut(model: HyMo) -> None:
    lm, engine = adapter(model), Engine(model, TOK)
    context = "".join(random.Random(5).choices("abcdefgh ", k=400))
    greedy = Sampling(temperature=0)
    (text,) = lm.generate_until([request("generate_until", context, {"until": [], "max_gen_toks": 10})])
    assert text == engine.generate(context[-(CONTEXT - 11) :], 10, greedy).text
    assert (lm.counts.truncated, lm.counts.shortened) == ({"by hand": 1}, {})
    (text,) = lm.generate_until([request("generate_until", context, {"until": [], "max_gen_toks": 1000})])
    kept = (CONTEXT - 1) // 2
    assert text == engine.generate(context[-kept:], CONTEXT - 1 - kept, greedy).text
    assert (lm.counts.truncated, lm.counts.shortened) == ({"by hand": 2}, {"by hand": 1})


def test_problems_are_answered_by_the_engine(model: HyMo, ran: tuple[OpenTasks, dict[str, Any]]) -> None:
    opened, results = ran
    engine = Engine(model, TOK)
    for instance in opened.tasks["problems"].instances[:3]:
        assert instance.args[0].count("Question: ") == 2
        text = engine.generate(instance.args[0], 12, Sampling(temperature=0)).text
        assert instance.resps == [text.split("Question:")[0].split("\n\n")[0]]
    assert results["problems"].metrics["exact_match,none"].value == 0


def test_trained_tokenizers_begin_with_one_bos(model: HyMo, trained: Tokenizer) -> None:
    lm = HymoLM(model, trained, window=64)
    bos = trained.bos_id
    for context, continuation in (("The old man", " went home"), ("", "The"), (" ", "x"), ("12", "345"), ("a ", "b")):
        before, after = lm._pair(context, continuation)
        assert before[0] == bos
        assert bos not in [*before[1:], *after]
        assert trained.decode([*before, *after]) == context + continuation
        assert after
    merged = next(text for i in range(16, 320) if len(text := trained.decode([i])) == 2 and text.isalpha())
    before, after = lm._pair(merged[0], merged[1])  # one token together: nothing would be left behind the context
    assert (before, trained.decode(after)) == ([bos], merged)
    assert lm.tok_encode("The", add_special_tokens=False) == trained.encode("The").tolist()


def test_models_of_other_makers_run_from_a_folder(trained: Tokenizer, tmp_path: Path) -> None:
    assert isinstance(trained, BPETokenizer)
    config = transformers.LlamaConfig(
        vocab_size=320, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    config.max_position_embeddings = 48
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(config).eval()
    llama.save_pretrained(tmp_path)
    eos = "<|endoftext|>"
    transformers.PreTrainedTokenizerFast(tokenizer_file=str(trained.file), eos_token=eos).save_pretrained(tmp_path)
    subject = hf_subject(str(tmp_path), torch.device("cpu"), batch_size=2)
    assert (subject.facts["bos"], subject.facts["context"]) == ("none", 48)
    assert subject.facts["checkpoint_hash"] == weights_hash(llama)
    pairs = [("The old man", " went home"), ("A", " dog and a cat"), ("", "It"), ("old" + " old" * 59, " dog")]
    lm: Any = subject.lm
    found = lm.loglikelihood([request("loglikelihood", *pair) for pair in pairs])
    assert lm.counts.truncated == {"by hand": 1}
    text = b"A text without a bos."
    (nats,) = lm.score_documents([text])
    with torch.no_grad():
        for (context, continuation), (total, _) in zip(pairs, found, strict=True):
            before, after = trained.encode(context).tolist() or [trained.eos_id], trained.encode(continuation).tolist()
            ids = torch.tensor([[*before, *after][-49:]])
            logprobs = torch.log_softmax(llama(ids[:, :-1]).logits[0], -1).gather(-1, ids[0, 1:, None])
            assert total == pytest.approx(float(logprobs[-len(after) :].sum()), rel=1e-5)
        ids = torch.tensor([[trained.eos_id, *trained.encode(text).tolist()]])
        logprobs = torch.log_softmax(llama(ids[:, :-1]).logits[0], -1).gather(-1, ids[0, 1:, None])
        assert nats == pytest.approx(float(logprobs.sum()), rel=1e-5)


def test_other_items_definitions_or_code_have_another_hash(
    folder: Path, ran: tuple[OpenTasks, dict[str, Any]], tmp_path: Path, model: HyMo
) -> None:
    def hash_of(place: Path, name: str = "words") -> str:
        return OpenTasks([name], TaskData(folders=[place]), place).run(adapter(model), seed=2, limit=1)[name].task_hash

    moved = tmp_path / "moved"
    write_tasks(moved)
    known = ran[1]["words"].task_hash
    assert hash_of(moved) == known
    yaml = (moved / "words.yaml").read_text()
    rows = [dict(row) for row in ran[0].tasks["words"].eval_docs]
    write_rows(moved / "words.jsonl", [{**rows[0], "question": rows[0]["question"] + "?"}, *rows[1:]])
    other_item = hash_of(moved)
    write_rows(moved / "words.jsonl", rows)
    (moved / "words.yaml").write_text(yaml.replace("Answer:", "So:"))
    other_prompt = hash_of(moved)
    (moved / "words.yaml").write_text(yaml.replace("num_fewshot: 2", "num_fewshot: 0"))
    no_examples = hash_of(moved)
    functions = "def pick(doc):\n    return 'ABCD'.index(doc['answerKey'])\n"
    (moved / "code.py").write_text(functions)
    (moved / "words.yaml").write_text(
        yaml.replace('doc_to_target: "{{choices.label.index(answerKey)}}"', "doc_to_target: !function code.pick")
    )
    in_code = hash_of(moved)
    (moved / "code.py").write_text(functions + "\n\nHELPER = 1\n")
    hashes = {known, other_item, other_prompt, no_examples, in_code, hash_of(moved)}
    assert len(hashes) == 6
    assert known != ran[1]["endings"].task_hash
