"""lm-evaluation-harness over HTTP gives what the model gives directly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling
from hymo.interop.tokenizer_files import write_tokenizer
from inference_helpers import drafter
from serving_helpers import serving

PAIRS = [
    ("SQLite is a ", "database"),
    ("SQLite is a ", "dog that barks at night"),
    ("The é → ", "é"),
    ("select * from t", " where"),
    ("", "The"),
    ("a" * 100, "b" * 20),
]


def instances(kind: str, arguments: list[tuple[object, ...]]) -> list[Instance]:
    return [Instance(kind, {}, given, place) for place, given in enumerate(arguments)]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_local_completions_equal_the_model(dataset: Path, tmp_path: Path, batch_size: int) -> None:
    engine = Engine(drafter("gated_linear", dataset), ByteTokenizer())
    write_tokenizer(engine.tokenizer, tmp_path, engine.context)
    with serving(engine) as server:
        harness = LocalCompletionsAPI(
            base_url=f"{server.url}/v1/completions",
            model="tiny",
            tokenizer=str(tmp_path),
            tokenizer_backend="huggingface",
            add_bos_token=True,
            batch_size=batch_size,
            max_length=256,
        )
        found = harness.loglikelihood(instances("loglikelihood", list(PAIRS)), disable_tqdm=True)
        assert len(found) == len(PAIRS)
        greedy = []
        for (context, continuation), (value, is_greedy) in zip(PAIRS, found, strict=True):
            kept = context.rstrip()  # the harness counts spaces between the two to the continuation
            ids = torch.tensor([engine.encode(context + continuation)])
            first = len(engine.encode(kept))
            with torch.no_grad():
                own = torch.log_softmax(engine.model(ids)[0].double(), -1)
            targets = ids[0, first:]
            rows = own[first - 1 : -1]
            assert value == pytest.approx(float(rows.gather(1, targets[:, None]).sum()), abs=1e-4)
            assert is_greedy == bool((rows.argmax(-1) == targets).all())
            greedy.append(is_greedy)
        until = {"until": [".", "\n"], "max_gen_toks": 30, "temperature": 0}
        prompts = ["SQLite is ", "The "]
        texts = harness.generate_until(
            instances("generate_until", [(p, dict(until)) for p in prompts]), disable_tqdm=True
        )
        for prompt, text in zip(prompts, texts, strict=True):
            assert text == engine.generate(prompt, 30, Sampling(temperature=0), stop=(".", "\n")).text
