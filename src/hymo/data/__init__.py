"""Text to batches: tokenizer, preparation, shards, training loader and evaluation windows. Imports no torch."""

from hymo.data.dataset import Manifest, Split, load_manifest, open_split, verify_dataset
from hymo.data.heldout import EvaluationWindows
from hymo.data.loader import PackedLoader
from hymo.data.prepare import prepare
from hymo.data.sample import sample_paths
from hymo.data.sources import Fields
from hymo.data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer, tokenizer_of_run

__all__ = [
    "ByteTokenizer",
    "EvaluationWindows",
    "Fields",
    "Manifest",
    "PackedLoader",
    "Split",
    "Tokenizer",
    "load_manifest",
    "load_tokenizer",
    "open_split",
    "prepare",
    "sample_paths",
    "tokenizer_of_run",
    "verify_dataset",
]
