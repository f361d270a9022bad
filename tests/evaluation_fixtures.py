"""Task definitions in the harness's own format, and mirrors of official data sets, made of the packaged text.

The packaged text is in the public domain; questions and sums are made up by code.
"""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hymo.data import sample_paths

SUBJECTS = ("letters", "lengths")
_MULTIPLE_CHOICE = """\
output_type: multiple_choice
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""


def block_sockets(patch: pytest.MonkeyPatch) -> None:
    """Fail whoever opens a connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    patch.setattr(socket.socket, "connect", refuse)
    patch.setattr(socket.socket, "connect_ex", refuse)
    patch.setattr(socket, "getaddrinfo", refuse)


def sentences(count: int, longest: int = 110) -> list[str]:
    """Sentences of the packaged text, in order."""
    lines = sample_paths()["train"].read_text(encoding="utf-8").splitlines()
    text = " ".join(json.loads(line)["text"] for line in lines[:20])
    found = [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s", text)]
    return [part for part in found if 60 <= len(part) <= longest and part.isascii()][:count]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _cut(sentence: str) -> tuple[str, str]:
    words = sentence.split()
    half = max(1, len(words) // 2)
    return " ".join(words[:half]), " ".join(words[half:])


def endings(count: int) -> list[dict[str, Any]]:
    """Like HellaSwag: the first half of a sentence and four second halves."""
    rng = random.Random(0)
    pairs = [_cut(sentence) for sentence in sentences(count + 3)]
    rows = []
    for index, (start, end) in enumerate(pairs[:count]):
        wrong = [pairs[(index + step) % len(pairs)][1] for step in (1, 2, 3)]
        label = rng.randrange(4)
        rows.append({"ctx": start, "endings": [*wrong[:label], end, *wrong[label:]], "label": label})
    return rows


def questions(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Like ARC: which word follows in a sentence."""
    rng = random.Random(seed)
    words = sorted({word for sentence in sentences(300) for word in re.findall(r"[a-z]{4,}", sentence)})
    rows = []
    for index in range(count):
        sentence = sentences(300)[index % 200].split()
        at = rng.randrange(1, len(sentence))
        options = [*rng.sample(words, 3), re.sub(r"\W", "", sentence[at]) or "word"]
        rng.shuffle(options)
        key = "ABCD"[options.index(re.sub(r"\W", "", sentence[at]) or "word")]
        asked = f"Which word follows '{' '.join(sentence[:at][-5:])}'?"
        rows.append(
            {
                "id": f"q{index}",
                "question": asked,
                "choices": {"text": options, "label": list("ABCD")},
                "answerKey": key,
            }
        )
    return rows


def letters(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Like MMLU: a question with four choices and the index of the answer."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        a, b = rng.randrange(2, 50), rng.randrange(2, 50)
        options = [str(a + b + shift) for shift in rng.sample(range(-4, 5), 4)]
        answer = rng.randrange(4)
        options[answer] = str(a + b)
        rows.append({"question": f"What is {a} + {b}?", "choices": options, "answer": answer, "subject": "sums"})
    return rows


def sums(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Like GSM8K: a problem in words, and a worked answer with the result behind ####."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        a, b = rng.randrange(2, 30), rng.randrange(2, 30)
        text = f"Ann has {a} nuts and finds {b} more. How many has she now?"
        rows.append({"question": text, "answer": f"Ann has {a} + {b} = {a + b} nuts.\n#### {a + b}"})
    return rows


def write_tasks(folder: Path, count: int = 100, problems: int = 8) -> None:
    """Local tasks `endings`, `words`, `sums` (a group of two), `problems` and `documents`."""
    write_rows(folder / "endings.jsonl", endings(count))
    write_rows(folder / "words.jsonl", questions(count))
    write_rows(folder / "words_train.jsonl", questions(12, seed=1))
    write_rows(folder / "problems.jsonl", sums(problems))
    write_rows(folder / "problems_train.jsonl", sums(6, seed=1))
    (folder / "endings.yaml").write_text(
        "task: endings\ndataset_path: json\ndataset_kwargs: {data_files: {test: endings.jsonl}}\ntest_split: test\n"
        'doc_to_text: "{{ctx}}"\ndoc_to_choice: endings\ndoc_to_target: label\n' + _MULTIPLE_CHOICE
    )
    (folder / "words.yaml").write_text(
        "task: words\ndataset_path: json\n"
        "dataset_kwargs: {data_files: {test: words.jsonl, train: words_train.jsonl}}\n"
        "test_split: test\nfewshot_split: train\nnum_fewshot: 2\n"
        'doc_to_text: "Question: {{question}}\\nAnswer:"\ndoc_to_choice: "{{choices.text}}"\n'
        'doc_to_target: "{{choices.label.index(answerKey)}}"\n' + _MULTIPLE_CHOICE
    )
    for index, subject in enumerate(SUBJECTS):
        write_rows(folder / f"{subject}.jsonl", letters(count // 2, seed=index))
        write_rows(folder / f"{subject}_dev.jsonl", letters(3, seed=10 + index))
        (folder / f"sums_{subject}.yaml").write_text(
            f"task: sums_{subject}\ntag: sums_parts\ndataset_path: json\n"
            f"dataset_kwargs: {{data_files: {{test: {subject}.jsonl, dev: {subject}_dev.jsonl}}}}\n"
            "test_split: test\nfewshot_split: dev\nnum_fewshot: 1\nfewshot_config: {sampler: first_n}\n"
            'doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}\\nC. {{choices[2]}}\\nD. {{choices[3]}}'
            '\\nAnswer:"\ndoc_to_choice: ["A", "B", "C", "D"]\ndoc_to_target: answer\n' + _MULTIPLE_CHOICE
        )
    (folder / "sums_group.yaml").write_text(
        "group: sums\ntask: [sums_parts]\naggregate_metric_list:\n  - {metric: acc, weight_by_size: true}\n"
    )
    (folder / "problems.yaml").write_text(
        "task: problems\ndataset_path: json\n"
        "dataset_kwargs: {data_files: {test: problems.jsonl, train: problems_train.jsonl}}\n"
        "output_type: generate_until\ntest_split: test\nfewshot_split: train\nnum_fewshot: 1\n"
        'doc_to_text: "Question: {{question}}\\nAnswer:"\ndoc_to_target: answer\n'
        'generation_kwargs: {until: ["Question:", "\\n\\n"], do_sample: false, max_gen_toks: 12}\n'
        "metric_list:\n  - {metric: exact_match, aggregation: mean, higher_is_better: true}\n"
        "metadata: {version: 1.0}\n"
    )
    write_rows(folder / "documents.jsonl", ({"text": text} for text in sentences(6, longest=400)))
    (folder / "documents.yaml").write_text(
        "task: documents\ndataset_path: json\ndataset_kwargs: {data_files: {test: documents.jsonl}}\n"
        'output_type: loglikelihood_rolling\ntest_split: test\ndoc_to_text: ""\ndoc_to_target: text\n'
        "metric_list:\n  - {metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}\n"
    )


def write_mirror(mirror: Path, mmlu_subjects: Iterable[str], count: int = 4) -> None:
    """Data sets with the fields and split names of the originals, as few items as tests need."""
    rows = endings(count)
    for split in ("train", "validation"):
        write_rows(
            mirror / "Rowan/hellaswag" / f"{split}.jsonl",
            (
                {
                    "ind": index,
                    "activity_label": "Reading",
                    "ctx_a": row["ctx"] + ".",
                    "ctx_b": "then",
                    "ctx": row["ctx"],
                    "endings": [f"{end} [step] on" for end in row["endings"]],
                    "source_id": "a",
                    "split": split,
                    "split_type": "indomain",
                    "label": str(row["label"]),
                }
                for index, row in enumerate(rows)
            ),
        )
    for name in ("ARC-Easy", "ARC-Challenge"):
        write_rows(mirror / "allenai/ai2_arc" / name / "train.jsonl", questions(30, seed=2))
        write_rows(mirror / "allenai/ai2_arc" / name / "validation.jsonl", questions(2, seed=3))
        write_rows(mirror / "allenai/ai2_arc" / name / "test.jsonl", questions(count, seed=4))
    for index, subject in enumerate(mmlu_subjects):
        for split, size in (("dev", 5), ("test", max(1, count // 4))):
            write_rows(mirror / "cais/mmlu" / subject / f"{split}.jsonl", letters(size, seed=index))
    write_rows(mirror / "openai/gsm8k/main/train.jsonl", sums(8, seed=1))
    write_rows(mirror / "openai/gsm8k/main/test.jsonl", sums(1))
    for split in ("train", "validation"):
        halves = [_cut(sentence) for sentence in sentences(count + 1)]
        piqa = [
            {"goal": start, "sol1": end, "sol2": halves[index + 1][1], "label": 0}
            for index, (start, end) in enumerate(halves[:count])
        ]
        write_rows(mirror / "baber/piqa" / f"{split}.jsonl", piqa)
        winogrande = [
            {
                "sentence": f"Ann gave the {a} to Ben because _ was too small.",
                "option1": f"the {a}",
                "option2": f"the {b}",
                "answer": "1" if index % 2 else "2",
            }
            for index, (a, b) in enumerate([("hat", "box"), ("cup", "jar"), ("key", "lock"), ("pen", "ink")][:count])
        ]
        write_rows(mirror / "allenai/winogrande/winogrande_xl" / f"{split}.jsonl", winogrande)
    for split in ("train", "validation", "test"):
        sciq = [
            {
                "question": row["question"],
                "support": sentences(count)[index],
                "correct_answer": row["choices"][row["answer"]],
                **{f"distractor{k}": f"{k} apples" for k in (1, 2, 3)},
            }
            for index, row in enumerate(letters(count))
        ]
        write_rows(mirror / "allenai/sciq" / f"{split}.jsonl", sciq)
    write_rows(mirror / "EleutherAI/lambada_openai/test.jsonl", ({"text": text} for text in sentences(count)))
