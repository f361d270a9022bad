"""Models, tokenizers and slow references for the tests of `hymo.inference`."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer, PackedLoader, open_split
from hymo.inference import Request
from hymo.models import HyMo, build_hymo
from hymo.training import Trainer
from model_helpers import build

BYTES = ByteTokenizer()


@functools.cache
def drafter(recurrence: str, dataset: Path, double: bool = False) -> HyMo:
    """A model trained just long enough for its drafts to be right sometimes and wrong sometimes."""
    if double:
        trained = drafter(recurrence, dataset)
        clone = build_hymo(trained.config)
        clone.load_state_dict(trained.state_dict())
        return clone.double().eval()
    config = derive_config(
        load_config("hymo_tiny"),
        model={"dim": 32, "gdn_d_inner": 64, "n_routed_experts": 4, "moe_inter_dim": 32, "gdn_chunk_size": 16}
        | {"gdn_recurrence": recurrence},
        scheduler={"total_steps": 100, "stable_frac": 0.83, "decay_frac": 0.15},
        training={"micro_batch_size": 4, "seq_len": 128, "log_interval": 1000},
        run={"device": "cpu"},
    )
    loader = PackedLoader(open_split(dataset, "train", BYTES), 128, 4)
    trainer = Trainer(config, loader)
    trainer.train()
    return trainer.master.eval()


class FewLetters:
    """eos, bos, pad and five tokens, two of which are parts of one character: a vocabulary to enumerate."""

    name = "few"
    eos_id, bos_id, pad_id = 0, 1, 2
    texts = (b"", b"", b"", b"a", b"b", b"ab", b"\xc3", b"\xa9")
    vocab_size = len(texts)

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        data = text.encode() if isinstance(text, str) else text
        return np.array([self.texts.index(bytes([byte])) for byte in data], dtype=np.int64)

    def encode_batch(self, texts: Sequence[str | bytes]) -> list[NDArray[np.unsignedinteger]]:
        return [self.encode(text).astype(np.uint16) for text in texts]

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(self.texts[i] for i in ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def fingerprint(self) -> str:
        return "few"


def few_letters_model() -> HyMo:
    """An fp64 model over `FewLetters` with one spare row; eos is rare enough for texts of some length."""
    changes = {"vocab_size": FewLetters.vocab_size + 1, "gdn_recurrence": "gated_delta", "tie_embeddings": False}
    model = build(double=True, **changes)
    assert model.head.weight is not None
    with torch.no_grad():
        model.head.weight.mul_(2)
        model.head.weight[FewLetters.eos_id] = 0
    return model


def stopped_at(data: bytes, stops: Sequence[str]) -> int | None:
    """Where text ends for its stop strings, byte by byte."""
    found = [stop.encode() for stop in stops]
    for end in range(1, len(data) + 1):
        hits = [end - len(stop) for stop in found if data[:end].endswith(stop)]
        if hits:
            return min(hits)
    return None


def slow_generation(
    model: HyMo, tokenizer: ByteTokenizer | FewLetters, request: Request, index: int
) -> tuple[list[int], str, str, list[float], list[list[tuple[int, float]]]]:
    """One continuation by full passes, one row, one token at a time: tokens, text, reason, logprobs, alternatives."""
    ids, numbers = list(request.prompt), random.Random(f"{request.sampling.seed}/{index}")
    tokens: list[int] = []
    logprobs, tops = [], []
    reason = "length"
    while len(tokens) < request.max_new_tokens:
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1].clone()
        logits[[tokenizer.bos_id, tokenizer.pad_id]] = -math.inf
        logits[tokenizer.vocab_size :] = -math.inf
        seen = torch.tensor([i in ids for i in range(len(logits))])
        point, reached = numbers.random(), 0.0
        token = -1
        for candidate, probability in enumerate(request.sampling.probabilities(logits, seen).tolist()):
            reached += probability
            if probability and (reached > point or token < 0):
                token = candidate
            if reached > point:
                break
        if token == tokenizer.eos_id:
            reason = "stop"
            break
        own = torch.log_softmax(logits, -1).tolist()
        ranked = sorted(range(len(own)), key=lambda i: -own[i])[: request.alternatives]
        ids.append(token)
        tokens.append(token)
        logprobs.append(own[token])
        tops.append([(i, own[i]) for i in ranked if own[i] > -math.inf])
        data = tokenizer.decode_bytes(tokens)
        cut = stopped_at(data, request.stop)
        if cut is not None:
            starts = [len(tokenizer.decode_bytes(tokens[:i])) for i in range(len(tokens))]
            kept = sum(start < cut for start in starts)
            return tokens[:kept], data[:cut].decode("utf-8", "replace"), "stop", logprobs[:kept], tops[:kept]
    return tokens, tokenizer.decode(tokens), reason, logprobs, tops
