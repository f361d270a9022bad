"""What a user's process does with exports: no `hymo`, no network. Prints JSON for `test_interop_fresh.py`."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

sys.modules["hymo"] = None  # importing it fails from here on


def refuse(*_: Any, **__: Any) -> None:
    raise OSError("no network in this process")


socket.socket.connect = refuse
socket.getaddrinfo = refuse

import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()


@torch.no_grad()
def use(folder: Path, prompts: list[str], new: int) -> dict[str, Any]:
    """Logits go to a file beside the export, all else into the result."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model, report = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    tokens = torch.load(folder.with_suffix(".tokens"))
    torch.save(model(tokens).logits, folder.with_suffix(".logits"))
    settings: dict[str, Any] = {"max_new_tokens": new, "do_sample": False}

    def text(ids: torch.Tensor) -> str:
        return tokenizer.decode(ids, skip_special_tokens=True)

    solo, uncached = [], []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        solo.append(text(model.generate(**inputs, **settings)[0, length:]))
        uncached.append(text(model.generate(**inputs, use_cache=False, **settings)[0, length:]))
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    length = inputs["input_ids"].shape[1]
    batch = [text(row[length:]) for row in model.generate(**inputs, **settings)]
    narrow = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.bfloat16)
    difference = (narrow(tokens).logits - model(tokens).logits).abs().mean() / model(tokens).logits.std()
    return {
        "keys": {kind: list(names) for kind, names in report.items() if names},
        "dtype": str(model.dtype),
        "tied": model.lm_head.weight is model.model.embed_tokens.weight,
        "ids": tokenizer(prompts)["input_ids"],
        "solo": solo,
        "uncached": uncached,
        "batch": batch,
        "left": inputs["attention_mask"][:, 0].tolist(),
        "context": AutoConfig.from_pretrained(folder, trust_remote_code=True).max_position_embeddings,
        "fp32": sorted(n for n, t in narrow.state_dict().items() if t.dtype == torch.float32),
        "bf16": float(difference),
        "code": sys.modules[type(model).__module__].__file__,
    }


if __name__ == "__main__":
    job = json.loads(sys.stdin.read())
    print(json.dumps({folder: use(Path(folder), job["prompts"], job["new"]) for folder in job["folders"]}))
