"""The demo excuses a text that drafts changed only at a near tie."""

import pytest
import torch

from hymo.cli.demo import PROMPT, _gap
from hymo.core.load import load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine
from hymo.models import build_hymo


def test_the_gap_is_that_of_the_logits_where_two_texts_part() -> None:
    engine = Engine(build_hymo(load_config("hymo_tiny")), ByteTokenizer())
    plain, drafted = [70, 80, 90, 100], [70, 80, 91, 100]
    assert _gap(engine, plain, plain) is None
    assert _gap(engine, plain, plain[:3]) == float("inf")
    state = engine.model.init_state(1)
    read = torch.tensor([[1, *(byte + 3 for byte in PROMPT.encode()), 70, 80]])
    with torch.no_grad():
        logits = engine.model.decode(read, state)[0, -1]
    assert _gap(engine, plain, drafted) == pytest.approx(abs(float(logits[90] - logits[91])), abs=1e-5)
    assert abs(float(logits[90] - logits[91])) > 1e-3
