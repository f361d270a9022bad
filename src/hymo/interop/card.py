"""The model card: a README for whoever finds the export, written from what the run recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hymo.core.accounting import count_parameters
from hymo.core.config import HyMoConfig
from hymo.models.checkpoint import Manifest

LORA_TARGETS = (
    *("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
    *("in_proj", "k_proj", "q_proj", "g_proj", "out_proj", "skip_proj"),
    *("shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj"),
)
"""Modules that adapters are usually put on; a name that the model does not have is simply not met."""
LORA_PARAMETERS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
"""Stacked tensors of the routed experts, which adapters take as parameters."""

_UNKNOWN = "not recorded"
_HEADS = "stored in `hymo_mtp.safetensors`, used by HyMo alone"


@dataclass(frozen=True)
class Facts:
    """What a card can say beyond the checkpoint itself."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """Measures of the checkpoint by name, for example val/bits_per_byte."""
    licences: Mapping[str, str] = field(default_factory=dict)
    """Licence of each source of the training text."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Training tokens in the data set by source."""


def write_card(config: HyMoConfig, manifest: Manifest, difference: float, facts: Facts) -> str:
    """The text of the card.

    Args:
        config: of the run.
        manifest: of the checkpoint.
        difference: largest difference of a logit that was measured.
        facts: what else the run recorded.
    """
    model = config.model
    parameters = count_parameters(model)
    rows = [
        ("parameters", f"{parameters.stored:,} stored, {parameters.active:,} active per token"),
        ("blocks", f"{model.n_layers}, of these {len(model.mla_layers)} with attention ({_listed(model.mla_layers)})"),
        ("recurrence", f"{model.gdn_recurrence}, {model.gdn_n_heads} heads"),
        ("width", f"{model.dim:,}"),
        ("context", f"{model.max_seq_len:,} tokens"),
        ("vocabulary", f"{model.vocab_size:,} entries"),
        ("output head", "tied to the embedding" if model.tie_embeddings else "a matrix of its own"),
        ("prediction heads", f"{model.mtp_depth}, {_HEADS}" if model.mtp_depth else "none"),
        ("trained on", f"{manifest.tokens:,} tokens in {manifest.step:,} steps"),
        ("configuration", f"`{manifest.config_hash}`; in full in `hymo_config.yaml`"),
        ("data", f"`{manifest.data}`" if manifest.data else _UNKNOWN),
        ("tokenizer", f"`{manifest.tokenizer}`" if manifest.tokenizer else _UNKNOWN),
        ("written by", f"HyMo {manifest.hymo_version}" + (f", commit {manifest.commit}" if manifest.commit else "")),
    ]
    figures = [(name, f"{value:.4f}") for name, value in facts.figures.items()]
    if not figures and manifest.best_loss is not None:
        figures = [("lowest validation loss of the run, nats per token", f"{manifest.best_loss:.4f}")]
    names = sorted({*facts.licences, *facts.sources})
    texts = [
        (name, f"{facts.sources[name]:,}" if name in facts.sources else _UNKNOWN, facts.licences.get(name, _UNKNOWN))
        for name in names
    ]
    return _CARD.format(
        name=config.run.name,
        facts=_table(("what", "value"), rows),
        figures=_table(("measure of this checkpoint", "value"), figures) if figures else f"Measures: {_UNKNOWN}.",
        texts=_table(("source", "training tokens", "licence"), texts) if texts else f"Sources: {_UNKNOWN}.",
        difference=f"{difference:.1e}",
        targets=json.dumps(LORA_TARGETS),
        parameters=json.dumps(LORA_PARAMETERS),
    )


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [hymo]
---

# {name}

A base language model (it continues text, it does not chat) of the HyMo family: blocks of linear attention with a
matrix-valued state, and blocks of latent attention with a sparse mixture of experts.

{facts}

{figures}

## Training text

{texts}

What the licences of the sources ask for holds for this model's user too. It repeats what it read, mistakes and
prejudices included; nothing was done to make its answers true or harmless.

## Use

```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
inputs = tokenizer(["Once upon a time", "The"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=20), skip_special_tokens=True))
```

`trust_remote_code=True` runs the two Python files of this folder; read them first. Texts start with `bos`, which the
tokenizer puts there. In bfloat16 the routers and the decays stay in fp32. Assisted decoding is not possible: the
recurrent state cannot go back.

For LoRA, these are the usual places; the second list is the routed experts:

```python
target_modules = {targets}
target_parameters = {parameters}
```

The logits were compared with those of the checkpoint when this folder was written: they differ by at most {difference}
(`hymo_export.json`). `hymo import` turns the folder back into a checkpoint.
"""
