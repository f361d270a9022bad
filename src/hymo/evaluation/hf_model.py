"""A model in the Hugging Face format under the same harness: the harness's own class, with what was cut counted.

Prompts begin as the model's own tokenizer begins a text, with a bos or without; one that is cut loses it. Weights are
read in fp32, as HyMo's.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from hymo.core.errors import UsageError
from hymo.evaluation.harness import LENGTHS, SEED, Counts, name_of, options_of
from hymo.evaluation.hashes import json_hash, weights_hash
from hymo.evaluation.subject import Subject
from hymo.evaluation.task_data import offline


class HFModel(HFLM):
    """The harness's class for Hugging Face models, which counts what it cuts."""

    def __init__(self, **options: Any) -> None:
        self._bare = False
        super().__init__(**options)
        self.counts = Counts()
        self.seed = SEED
        self._tasks: list[str] = []

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """As the harness does it."""
        self._tasks = [name_of(request) for request in requests]
        try:
            found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=not sys.stderr.isatty())
        finally:
            self._tasks = []
        return found

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, override_bs: int | None = None) -> Any:
        for task, (_, context, continuation) in zip(self._tasks, requests, strict=False):
            if len(context) + len(continuation) - 1 > self.max_length:
                self.counts.truncated[task] += 1
        return super()._loglikelihood_tokens(requests, not sys.stderr.isatty(), override_bs)

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """As the harness does it, the last window filled up with context, but with one bos before a text, not two."""
        self._bare = True
        try:
            found: list[float] = super().loglikelihood_rolling(requests, disable_tqdm=not sys.stderr.isatty())
        finally:
            self._bare = False
        return found

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        """Ids of a text; inside a rolling likelihood without the bos, which the harness puts before it itself."""
        bare = False if self._bare else add_special_tokens
        found: list[int] = super().tok_encode(string, add_special_tokens=bare, **options)
        return found

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """As the harness does it, with as many new tokens as `HymoLM` would allow."""
        fitting = []
        for request in requests:
            context, options = request.args
            length = len(self.tok_encode(context))
            _, limit = self.counts.fit(name_of(request), length, options_of(options)[1], self.max_length)
            options = {name: value for name, value in options.items() if name not in LENGTHS}
            fitting.append(dataclasses.replace(request, arguments=(context, {**options, LENGTHS[0]: limit})))
        found: list[str] = super().generate_until(fitting, disable_tqdm=not sys.stderr.isatty())
        return found

    def score_documents(self, documents: list[bytes]) -> list[float]:
        """Log-probability in nats of each document; bytes that are no UTF-8 become U+FFFD."""
        texts = [document.decode("utf-8", "replace") for document in documents]
        return self.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts])


def hf_subject(
    name: str, device: torch.device, *, batch_size: int, trust_remote_code: bool = False, download: bool = False
) -> Subject:
    """Load a folder, or a model of the Hub from its local cache.

    Raises:
        UsageError: it is not there, or cannot be loaded.
    """
    place = str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name
    try:
        with offline(not download):
            lm = HFModel(
                pretrained=place,
                device=str(device),
                batch_size=batch_size,
                dtype="float32",
                trust_remote_code=trust_remote_code,
            )
    except (OSError, ValueError, ImportError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"hf:{name}: cannot be loaded ({reason}). Give a folder, fetch it with `hf download {name}`, or pass "
            "--download; code of its own needs --trust-remote-code."
        ) from error
    tokenizer = lm.tokenizer
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True  # it is cut later
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    prompt = lm.tok_encode("a")
    config = {key: value for key, value in lm.model.config.to_dict().items() if key != "_name_or_path"}
    facts = {
        "model": f"hf:{name}",
        "checkpoint_hash": weights_hash(lm.model),
        "config_hash": json_hash(config),
        "tokenizer_hash": json_hash(vocabulary),
        "dtype": "float32",
        "device": device.type,
        "context": lm.max_length,
        "bos": "once, before every prompt" if prompt[:1] == [tokenizer.bos_token_id] else "none",
        "transformers_version": transformers.__version__,
        "torch_version": torch.__version__,
    }
    return Subject(lm, f"hf:{name}", facts)
