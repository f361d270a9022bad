"""From hidden states of many texts to their next tokens, each drawn by its own rule and its own random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hymo.data.tokenizer import Tokenizer
from hymo.inference.choice import Choice, Job
from hymo.inference.request import Scored, Token
from hymo.inference.sampling import Sampling
from hymo.models import HyMo

_SCORED = 1024
"""Tokens of a prompt whose logits are formed at once."""


class Picker:
    """Draws tokens for rows of a batch."""

    def __init__(self, model: HyMo, tokenizer: Tokenizer) -> None:
        self._model, self._vocab_size = model, tokenizer.vocab_size
        closed = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=model.embed.weight.device)
        closed[[tokenizer.bos_id, tokenizer.pad_id]] = True
        closed[tokenizer.vocab_size :] = True
        self.closed = closed
        """bool (V,) tokens that no text can continue with: bos, pad, and unused rows."""

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., V) logits with those rows closed that no text can continue with: bos, pad, and unused ones."""
        return self._model.logits(hidden).masked_fill(self.closed, -torch.inf)

    def begin(self, choices: Sequence[Choice]) -> None:
        """Prepare texts whose prompt has just been read."""
        for choice in choices:
            if choice.rule.repetition_penalty != 1:
                choice.seen = torch.zeros_like(self.closed)
                choice.seen[list(choice.job.request.prompt)] = True

    def pick(
        self,
        choices: Sequence[Choice],
        logits: Tensor,
        drafts: Tensor | None = None,
        depths: Sequence[int] | None = None,
    ) -> list[list[Token]]:
        """The next tokens of each text: the drafts that its own draws confirm, and one more. The host waits once.

        Args:
            choices: texts, one a row.
            logits: (rows, width, V) of `logits`, place j of a row after its first j drafts.
            drafts: int64 (rows, width - 1); none if left out.
            depths: drafts of each row that count.
        """
        width = logits.shape[1]
        logprobs = torch.log_softmax(logits, -1)
        numbers = [choice.uniforms.peek(width) for choice in choices]
        uniforms = torch.tensor(numbers, dtype=torch.float64).to(logits.device, draw_dtype(logits), non_blocking=True)
        by_rule = _by_rule(choices)
        if len(by_rule) == 1:
            drawn = choices[0].rule.draw(logits, uniforms, self._seen(choices, drafts, width))
        else:
            drawn = torch.zeros(uniforms.shape, dtype=torch.int64, device=logits.device)
            for rule, rows in by_rule.items():
                index = torch.tensor(rows, device=logits.device)
                theirs = None if drafts is None else drafts[index]
                seen = self._seen([choices[row] for row in rows], theirs, width)
                drawn[index] = rule.draw(logits[index], uniforms[index], seen)
        chosen = logprobs.gather(-1, drawn[..., None])[..., 0]
        tops = self._tops(choices, logprobs)
        parts = (
            [drawn.to(chosen.dtype), chosen]
            if drafts is None
            else [drawn.to(chosen.dtype), chosen, drafts.to(chosen.dtype)]
        )
        return judged(choices, torch.cat(parts, 1).tolist(), width, depths, tops)

    def score(self, job: Job, hidden: Tensor) -> None:
        """Add to a job what the model says of the tokens of its prompt after those just read, `hidden` (n, dim)."""
        prompt, alternatives = job.request.prompt, job.request.alternatives
        if not job.scored:
            job.scored.append(Scored(prompt[0], None))
        following = prompt[job.read + 1 : job.read + 1 + len(hidden)]
        if not following:
            return
        for start in range(0, len(following), _SCORED):  # a long prompt's logits at once would take gigabytes
            part = following[start : start + _SCORED]
            logprobs = torch.log_softmax(self._model.logits(hidden[start : start + len(part)]), -1)
            ids = torch.tensor(part, device=logprobs.device)
            values = logprobs.gather(-1, ids[:, None])[:, 0].tolist()
            tops = _top(logprobs[:, : self._vocab_size], alternatives)  # rows behind are no tokens
            for place, token in enumerate(part):
                job.scored.append(Scored(token, values[place], tops[place][:alternatives] if tops else ()))

    def _seen(self, choices: Sequence[Choice], drafts: Tensor | None, width: int) -> Tensor | None:
        """bool (rows, width, V): tokens seen before each place, the drafts before it included."""
        if any(choice.seen is None for choice in choices):
            return None
        seen = torch.stack([choice.seen for choice in choices if choice.seen is not None])
        seen = seen[:, None].repeat(1, width, 1)
        for place in range(0 if drafts is None else width - 1):
            assert drafts is not None
            later = seen[:, place + 1 :]
            later.scatter_(-1, drafts[:, place, None, None].expand(-1, later.shape[1], 1), True)
        return seen

    def _tops(self, choices: Sequence[Choice], logprobs: Tensor) -> list[list[tuple[tuple[int, float], ...]]]:
        """The most likely tokens of every place, empty for texts that did not ask."""
        asked = [choice.job.request.alternatives for choice in choices]
        found: list[list[tuple[tuple[int, float], ...]]] = [[] for _ in choices]
        rows = [row for row, count in enumerate(asked) if count]
        if rows:
            width = logprobs.shape[1]
            flat = _top(logprobs[torch.tensor(rows, device=logprobs.device)].flatten(0, 1), max(asked))
            for place, row in enumerate(rows):
                found[row] = [top[: asked[row]] for top in flat[place * width : (place + 1) * width]]
        return found


def judged(
    choices: Sequence[Choice],
    lines: Sequence[Sequence[float]],
    width: int,
    depths: Sequence[int] | None = None,
    tops: Sequence[Sequence[tuple[tuple[int, float], ...]]] | None = None,
) -> list[list[Token]]:
    """The tokens of each text: the drafts that its draws confirm, and one more. Uses up its random numbers.

    Args:
        choices: texts, one a row.
        lines: of each row `width` tokens drawn, their log-probabilities, and `width - 1` drafts.
        width: places of a row.
        depths: drafts of each row that count; none if left out.
        tops: the most likely tokens of each row and place; an empty row has none.
    """
    result = []
    for row, choice in enumerate(choices):
        line, tokens = lines[row], []
        depth = 0 if depths is None else depths[row]
        for place in range(depth + 1):
            token = int(line[place])
            confirmed = place < depth and token == line[2 * width + place]
            top = tops[row][place] if tops is not None and tops[row] else ()
            tokens.append(Token(token, line[width + place], confirmed, top))
            if not confirmed:
                break
        choice.uniforms.skip(len(tokens))
        result.append(tokens)
    return result


def draw_dtype(logits: Tensor) -> torch.dtype:
    """Type of uniform numbers on a device: fp64 where there is one."""
    return torch.float32 if logits.device.type == "mps" else torch.float64


def _by_rule(choices: Sequence[Choice]) -> dict[Sampling, list[int]]:
    """Rows by how their tokens are drawn."""
    rows: dict[Sampling, list[int]] = {}
    for row, choice in enumerate(choices):
        rows.setdefault(choice.rule, []).append(row)
    return rows


def _top(logprobs: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """The `count` most likely tokens of each row (n, V) that have any probability."""
    if count == 0:
        return []
    values, ids = logprobs.topk(min(count, logprobs.shape[-1]), -1)
    return [
        tuple((token, value) for token, value in zip(*row, strict=True) if value > -torch.inf)
        for row in zip(ids.tolist(), values.tolist(), strict=True)
    ]
