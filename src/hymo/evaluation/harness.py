"""A HyMo model as a model of EleutherAI's lm-evaluation-harness.

Beginning of a text: every prompt begins with exactly one bos, as every document does in training and in `hymo eval`,
and keeps it when it is cut. Only the later windows of a long document (rolling likelihood) begin without one, with the
last token of the window before, as in training.

Length: what does not fit into the context is cut on the left, behind the bos, and counted.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from tqdm import tqdm

from hymo.core.errors import UsageError
from hymo.data.heldout import cut_document
from hymo.data.tokenizer import Tokenizer
from hymo.evaluation.scoring import Row, Score, score_rows
from hymo.inference import Engine, Sampling
from hymo.models import HyMo

SEED = 1234
"""Seed of drawn examples and texts unless another is asked for; the harness's own default."""
_MAX_NEW_TOKENS = 256
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the most new tokens in a request, those before going first."""
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class Counts:
    """What was cut, by task."""

    def __init__(self) -> None:
        self.truncated: Counter[str] = Counter()
        """Requests whose context lost tokens on the left."""
        self.shortened: Counter[str] = Counter()
        """Texts that were allowed fewer tokens than the task asks for."""

    def fit(self, task: str, prompt: int, limit: int, room: int) -> tuple[int, int]:
        """How many of a prompt's tokens and how many new ones fit into the room: half each if both are too long."""
        kept = min(prompt, max(room - limit, room // 2))
        if kept < prompt:
            self.truncated[task] += 1
        if kept + limit > room:
            self.shortened[task] += 1
            limit = room - kept
        return kept, limit


class HymoLM(TemplateLM):
    """Answers the harness's requests with a HyMo model.

    Args:
        model: on the device to run on.
        tokenizer: of the training data.
        batch_size: rows per forward pass; changes speed, not results.
        window: tokens per window of rolling likelihoods, as the training length in `hymo eval`.
        stride: tokens between the windows' starts; None is `window`.
        progress: show a bar on stderr.
    """

    backend: ClassVar[str] = "causal"

    def __init__(
        self,
        model: HyMo,
        tokenizer: Tokenizer,
        *,
        window: int,
        stride: int | None = None,
        batch_size: int = 8,
        progress: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.ids = model, tokenizer
        self.engine = Engine(model, tokenizer)
        self.window, self.stride, self.batch_size = window, stride or window, batch_size
        self.seed = SEED
        self.counts = Counts()
        self._progress = progress

    @property
    def eot_token_id(self) -> int:
        """End of text."""
        return self.ids.eos_id

    @property
    def prefix_token_id(self) -> int:
        """What stands before the first token of a text."""
        return self.ids.bos_id

    @property
    def max_length(self) -> int:
        """Most tokens that the model reads."""
        return self.engine.context

    def tok_encode(self, string: str | bytes, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Ids of a text; bos before them unless add_special_tokens is False."""
        ids: list[int] = self.ids.encode(string).tolist()
        return ids if add_special_tokens is False else [self.ids.bos_id, *ids]

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[Score]:
        """Log-probability in nats of each continuation, and whether greedy decoding would give it."""
        pairs = ((request.args, *self._pair(*request.args)) for request in requests)
        return self._loglikelihood_tokens(pairs, tasks=[name_of(request) for request in requests])

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of context and continuation by the harness's rule: those of both together, split behind the context."""
        if not context:
            return [self.ids.bos_id], self.tok_encode(continuation, add_special_tokens=False)
        before, after = self._encode_pair(context, continuation)
        if after or not continuation:
            return before, after
        whole = self.tok_encode(context + continuation)  # the last token of the context runs into the continuation
        common = next((i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), len(whole) - 1)
        return whole[:common], whole[common:]

    def _loglikelihood_tokens(
        self,
        requests: Iterable[tuple[Any, list[int], list[int]]],
        tasks: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> list[Score]:
        rows = []
        kept: dict[tuple[int, ...], tuple[int, ...]] = {}  # the choices of a question often have one prompt: keep one
        for index, (_, context, continuation) in enumerate(requests):
            found = self._rows(context, continuation)
            rows.append([Row(kept.setdefault(row.inputs, row.inputs), row.targets) for row in found])
            if len(context) + len(continuation) - 1 > self.max_length and tasks is not None:
                self.counts.truncated[tasks[index]] += 1
        return self._sums(rows)

    def _rows(self, context: list[int], continuation: list[int]) -> Iterator[Row]:
        """The rows of one request: one, or the windows of a continuation that is longer than the model's context."""
        whole, room = [*context, *continuation], self.max_length
        if len(whole) - 1 > room:
            if len(continuation) > room:
                yield from windows([self.ids.bos_id, *continuation], room, room)
                return
            whole = [self.ids.bos_id, *whole[len(whole) - room :]]
        yield Row(tuple(whole[:-1]), tuple(continuation))

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-probability in nats of each whole text, cut into windows as `hymo eval` cuts it."""
        texts = [self.tok_encode(request.args[0]) for request in requests]
        return [nats for nats, _ in self._sums([list(windows(ids, self.window, self.stride)) for ids in texts])]

    def score_documents(self, documents: list[bytes]) -> list[float]:
        """Log-probability in nats of each document."""
        return self.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0) for text in documents])

    def _sums(self, groups: Sequence[Sequence[Row]]) -> list[Score]:
        """Score rows that belong together as one."""
        flat = [row for group in groups for row in group]
        with bar(len(set(flat)), "rows", self._progress) as shown:
            scores = iter(score_rows(self.model, flat, self.batch_size, self.ids.pad_id, shown.update))
        sums = []
        for group in groups:
            own = [next(scores) for _ in group]
            sums.append((sum(nats for nats, _ in own), all(greedy for _, greedy in own)))
        return sums

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continue each context up to a stop string, which is left out, to the end of the text or to the limit.

        A text that is drawn depends on `seed`, on its context and on how often that context was asked for before,
        not on the other requests.
        """
        asked: Counter[str] = Counter()
        wanted = []
        for request in requests:
            context, options = request.args
            stops, limit, sampling = options_of(options)
            key = f"{self.seed}\0{asked[context]}\0{context}"
            asked[context] += 1
            seed = int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big")
            prompt, limit = self._fit(context, limit, name_of(request))
            wanted.append(self.engine.request(prompt, limit, Sampling(seed=seed, **sampling), stop=stops))
        scheduler = self.engine.scheduler(self.batch_size)
        jobs = [scheduler.submit(request) for request in wanted]
        with bar(len(jobs), "texts", self._progress) as shown:
            while not scheduler.idle:
                scheduler.step()
                shown.update(sum(job.finished for job in jobs) - shown.n)
        return [job.generations()[0].text for job in jobs]

    def _fit(self, context: str, limit: int, task: str) -> tuple[str | bytes, int]:
        """The prompt and the limit that the context holds."""
        ids = self.tok_encode(context, add_special_tokens=False)
        room = self.max_length - 1
        kept, limit = self.counts.fit(task, len(ids), limit, room)
        if kept == len(ids):
            return context, limit
        prompt = self.ids.decode_bytes(ids[len(ids) - kept :])
        while kept and len(self.ids.encode(prompt)) > room - limit:  # cut text may have more tokens than it had inside
            kept -= 1
            prompt = self.ids.decode_bytes(ids[len(ids) - kept :])
        return prompt, limit


def windows(ids: Sequence[int], length: int, stride: int) -> Iterator[Row]:
    """The windows of ``bos t1 … tn`` that `hymo eval` would score."""
    for piece in cut_document(0, len(ids) - 1, 0, length, stride):
        yield Row(tuple(ids[piece.start : piece.stop - 1]), tuple(ids[piece.score : piece.stop]))


def name_of(request: Instance) -> str:
    """The task that a request belongs to; empty for one made by hand."""
    return request.task_name or ""


def bar(total: int, unit: str, shown: bool) -> Any:
    """A progress bar on stderr, or nothing."""
    return tqdm(total=total, unit=unit, disable=not shown, file=sys.stderr, leave=False)


def options_of(options: dict[str, Any]) -> tuple[list[str], int, dict[str, Any]]:
    """Stop strings, most new tokens and sampling of a request; greedy unless `do_sample` is true.

    Raises:
        UsageError: an option that HyMo does not have.
    """
    given = {name: value for name, value in options.items() if value is not None}
    until = given.pop("until", [])
    stops = [until] if isinstance(until, str) else list(until)
    limits = [given.pop(name) for name in LENGTHS if name in given]
    sampling = {name: given.pop(name) for name in _SAMPLING if name in given}
    if not given.pop("do_sample", False):
        sampling |= {"temperature": 0.0}
    if given:
        known = ", ".join(("until", *LENGTHS, "do_sample", *_SAMPLING))
        raise UsageError(f"generation option '{next(iter(given))}': not supported. HyMo knows {known}.")
    return [stop for stop in stops if stop], int(limits[0]) if limits else _MAX_NEW_TOKENS, sampling
