"""The training step of other models of the flagship's active size, on the same batches, one row each.

    python benchmarks/peers_train.py --data DATA --tokenizer TOKENIZER --peer hf-llama --micro-batch 4 8 16 --json OUT

Peers are Hugging Face transformers with their own code, each at its best: compiled body, fused AdamW, cross-entropy
that never holds the logits (Liger where installed, else compiled over slices). Every combination runs in a process of
its own; one that fails is listed as failed. Rows carry the keys of `benchmarks/train.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from environment import environment

SHAPES: dict[str, dict[str, int]] = {
    "hf-llama": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 3648},
    "hf-qwen3-next": {
        "hidden_size": 896,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "head_dim": 64,
        "linear_num_key_heads": 10,
        "linear_num_value_heads": 10,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "intermediate_size": 1648,
    },
}
"""Each with the flagship's vocabulary and active parameters (434.5 M). In the second, every fourth layer attends and
has 16 experts, two active, and a shared one."""
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
SLICE = 4096
"""Tokens whose logits exist at a time in the sliced cross-entropy."""


def build(peer: str, shape: dict[str, int], vocab_size: int, context: int) -> tuple[Any, nn.Module]:
    """The whole causal language model, and its body (tokens to hidden states)."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

    common = {
        "vocab_size": vocab_size,
        "max_position_embeddings": context,
        "tie_word_embeddings": True,
        "use_cache": False,
        "attn_implementation": "sdpa",
        **shape,
    }
    if peer == "hf-llama":
        model: Any = LlamaForCausalLM(LlamaConfig(num_key_value_heads=shape["num_attention_heads"], **common))
    else:
        experts = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": shape["intermediate_size"]}
        experts |= {"shared_expert_intermediate_size": shape["intermediate_size"], "decoder_sparse_step": 4}
        model = Qwen3NextForCausalLM(Qwen3NextConfig(num_key_value_heads=4, **experts, **common))
    return model, model.model


def active_parameters(peer: str, model: nn.Module) -> int:
    """Parameters that a token passes: two of sixteen experts, all others once."""
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    return total - routed * 14 // 16 if peer == "hf-qwen3-next" else total


def sliced_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Sum of token losses; the backward pass makes a slice's logits again."""
    piece = torch.compile(lambda h, w, t: F.cross_entropy((h @ w.T).float(), t, reduction="sum"))
    parts = zip(hidden.split(SLICE), targets.split(SLICE), strict=True)
    sums = [torch.utils.checkpoint.checkpoint(piece, h, weight, t, use_reentrant=False) for h, t in parts]
    return torch.stack(sums).sum()


def loss_function(kind: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if kind == "sliced":
        return sliced_loss
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    liger = LigerFusedLinearCrossEntropyLoss(reduction="sum")
    return lambda hidden, weight, targets: liger(weight, hidden, targets)


def windows(arguments: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets (micro_batch, T) of the loader that HyMo's own rows are measured with."""
    from hymo.data import PackedLoader, load_tokenizer, open_split

    split = open_split(arguments.data, "train", load_tokenizer(arguments.tokenizer))
    rows = arguments.tokens_per_step // arguments.seq_len
    micro = rows // arguments.micro_batch[0]
    loader = PackedLoader(split, arguments.seq_len, rows, seed=0, packed=False, max_epochs=10_000, num_workers=0)
    step = 0
    while True:
        for index in range(micro):
            batch = loader.batch_at(step, micro=index, n_micro=micro)
            tokens = (
                torch.as_tensor(batch["tokens"]).long().pin_memory()
                if arguments.device == "cuda"
                else (torch.as_tensor(batch["tokens"]).long())
            )
            tokens = tokens.to(arguments.device, non_blocking=True)
            yield tokens[:, :-1], tokens[:, 1:]
        step += 1


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    from hymo.core.hardware import match_device
    from hymo.data import load_tokenizer

    torch.manual_seed(0)
    peer, micro_batch = arguments.peer[0], arguments.micro_batch[0]
    cuda = arguments.device == "cuda"
    shape = SHAPES[peer] | (json.loads(arguments.shape) if arguments.shape else {})
    vocab_size = arguments.vocab_size or load_tokenizer(arguments.tokenizer).vocab_size
    kind = torch.float32 if arguments.precision == "autocast" else torch.bfloat16
    model, body = build(peer, shape, vocab_size, arguments.seq_len)
    model.to(arguments.device, kind).train()
    run = torch.compile(body) if arguments.compile else body
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=cuda)
    criterion = loss_function(arguments.loss)
    stream = windows(arguments)
    micro = arguments.tokens_per_step // (micro_batch * arguments.seq_len)
    weight = model.get_output_embeddings().weight

    def step() -> Tensor:
        total = torch.zeros((), device=arguments.device)
        for _ in range(micro):
            inputs, targets = next(stream)
            with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "autocast"):
                hidden = run(input_ids=inputs).last_hidden_state.flatten(0, 1)
                loss = criterion(hidden, weight.to(hidden.dtype), targets.flatten()) / arguments.tokens_per_step
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    def synchronise() -> None:
        if cuda:
            torch.cuda.synchronize()

    backend = sdpa_kernel(BACKENDS[arguments.attention]) if arguments.attention != "auto" else contextlib.nullcontext()
    with backend:
        began = time.perf_counter()
        first = float(step())
        for _ in range(arguments.warmup - 1):
            step()
        synchronise()
        warmed = time.perf_counter() - began
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        steps, began = 0, time.perf_counter()
        while steps == 0 or time.perf_counter() - began < arguments.seconds:
            last = step()
            synchronise()
            steps += 1
        elapsed = time.perf_counter() - began
    rate = steps * arguments.tokens_per_step / elapsed
    hardware = match_device(torch.cuda.get_device_name()) if cuda else None
    active = active_parameters(peer, model)
    full_layers = shape["num_hidden_layers"] // (1 if peer == "hf-llama" else 4)
    flops = 6 * active + 6 * full_layers * shape["hidden_size"] * arguments.seq_len
    return {
        "config": json.dumps(shape),
        "impl": peer,
        "gpus": 1,
        "micro_batch": micro_batch,
        "tokens_per_step": arguments.tokens_per_step,
        "seq_len": arguments.seq_len,
        "optimizer": "AdamW, fused",
        "mtp_depth": 0,
        "parameters_active": active,
        "precision": arguments.precision,
        "attention": arguments.attention,
        "loss": arguments.loss,
        "compiled": arguments.compile,
        "steps": steps,
        "seconds": elapsed,
        "warmup_seconds": warmed,
        "tok_per_s": rate,
        "mfu": rate * flops / hardware.peak if hardware is not None and hardware.peak else None,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        "loss_first": first,
        "loss_last": float(last),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--peer", nargs="+", choices=sorted(SHAPES), default=["hf-llama"])
    parser.add_argument("--micro-batch", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--tokens-per-step", type=int, default=262_144)
    parser.add_argument("--attention", choices=["auto", *BACKENDS], default="cudnn")
    parser.add_argument("--loss", choices=["liger", "sliced"], default="liger")
    parser.add_argument("--precision", choices=["autocast", "bf16"], default="bf16", help="bf16: states too")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--shape", help="JSON over the peer's shape, for a smaller one")
    parser.add_argument("--vocab-size", type=int, help="the tokenizer's, unless given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return
    rows = []
    for peer in arguments.peer:
        for size in arguments.micro_batch:
            command = [sys.executable, *sys.argv, "--peer", peer, "--micro-batch", str(size), "--one"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                row: dict[str, Any] = {"impl": peer, "micro_batch": size, "failed": reason}
                print(f"{peer}, micro-batch {size}: failed: {reason}", flush=True)
            else:
                row = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"{peer}, micro-batch {size}: {row['tok_per_s']:,.0f} tok/s, MFU {row['mfu'] or 0:.3f}, "
                    f"{row['peak_gib'] or 0:.1f} GiB, loss {row['loss_first']:.3f} to {row['loss_last']:.3f}",
                    flush=True,
                )
            rows.append(row)
            if arguments.json:
                arguments.json.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
