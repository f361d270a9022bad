"""A tokenizer as transformers reads it: `tokenizer.json` and `tokenizer_config.json`.

The ids are HyMo's. As in HyMo, a text starts with bos when specials are asked for (the default there), and special
strings inside a text are text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hymo.core.files import write_text
from hymo.data.bpe import SPECIALS, BPETokenizer, byte_letters
from hymo.data.tokenizer import TOKENIZER, ByteTokenizer, Tokenizer

CONFIG_FILE = "tokenizer_config.json"


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write both files into an export.

    Args:
        tokenizer: of the model.
        folder: of the export.
        context: most tokens of a text.
    """
    if isinstance(tokenizer, BPETokenizer):
        content = json.loads(tokenizer.file.read_text(encoding="utf-8"))
        names = {i: name for name, i in tokenizer.vocabulary.specials.items()}
    else:
        content = _byte_tokenizer()
        names = dict(enumerate(SPECIALS))
    eos, bos, pad = names[tokenizer.eos_id], names[tokenizer.bos_id], names[tokenizer.pad_id]
    content["post_processor"] = _begin_with(bos, tokenizer.bos_id)
    write_text(folder / TOKENIZER, json.dumps(content, ensure_ascii=False))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "padding_side": "left",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_text(folder / CONFIG_FILE, json.dumps(settings, indent=2))


def _byte_tokenizer() -> dict[str, Any]:
    """One entry a byte behind the specials, and nothing to merge."""
    specials = SPECIALS[: ByteTokenizer.n_specials]
    letters = {letter: ByteTokenizer.n_specials + byte for byte, letter in byte_letters().items()}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, **flags} for i, name in enumerate(specials)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {**{name: i for i, name in enumerate(specials)}, **letters},
            "merges": [],
        },
    }


def _begin_with(bos: str, bos_id: int) -> dict[str, Any]:
    """A step that puts bos before a text, and before the second of a pair too."""

    def item(kind: str, name: str, of: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": of}}

    single = [item("SpecialToken", bos, 0), item("Sequence", "A", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, item("SpecialToken", bos, 1), item("Sequence", "B", 1)],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }
