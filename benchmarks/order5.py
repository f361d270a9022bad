"""An order-5 byte model trained on exactly the bytes that a run reads, scored on the first held-out bytes.

    python benchmarks/order5.py DATA [--max-bytes 200000] [--set section.field=value ...]

The overrides are those of the run's `hymo train hymo_demo`.
"""

from __future__ import annotations

import argparse

from hymo.core.load import load_config
from hymo.data import ByteTokenizer, open_split
from hymo.evaluation.baselines import WittenBell, gzip_bits_per_byte, xz_bits_per_byte
from hymo.training.run import training_loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--config", default="hymo_demo")
    parser.add_argument("--max-bytes", type=int, default=200_000)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.overrides)
    tokenizer = ByteTokenizer()
    loader = training_loader(config, open_split(arguments.data, "train", tokenizer))
    read = b"".join(
        tokenizer.decode_bytes(row)
        for step in range(config.total_steps)
        for row in loader.batch_at(step)["tokens"][:, :-1]
    )
    split = open_split(arguments.data, "validation", tokenizer)
    held_out, position = b"", 0
    while len(held_out) < arguments.max_bytes and position < split.n_documents:
        held_out += tokenizer.decode_bytes(split.document(position))
        position += 1
    held_out = held_out[: arguments.max_bytes]
    print(f"{len(read):,} training bytes, {len(held_out):,} held-out bytes")
    print(f"gzip -9      {gzip_bits_per_byte(held_out):.4f}")
    print(f"xz -9e       {xz_bits_per_byte(held_out):.4f}")
    for order in (4, 5, 6):
        print(f"{order}-grams      {WittenBell(order).fit(read).bits_per_byte(held_out):.4f}")


if __name__ == "__main__":
    main()
