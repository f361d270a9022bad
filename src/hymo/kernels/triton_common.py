"""What all Triton kernels share: the matrix product with its guard, and the choice of operand type."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels run in Triton's interpreter on the CPU (TRITON_INTERPRET=1)."""
LOG2E = tl.constexpr(1.4426950408889634)


def operand_dtype(x: Tensor) -> tl.dtype:
    """Type of matrix-product operands: fp32 for fp32 inputs, else bf16.

    fp16 inputs take bf16 because a state can leave the range of fp16. The interpreter multiplies bf16 operands wrongly
    and without a word, so there everything is fp32.
    """
    if x.dtype is torch.float32 or INTERPRETED.value:
        return tl.float32
    return tl.bfloat16


def kept_dtype(x: Tensor) -> torch.dtype:
    """Type in memory of the states that enter tiles."""
    return torch.float32 if x.dtype is torch.float32 else torch.bfloat16


def keeps(v: Tensor, d_state: int) -> bool:
    """Whether the forward pass keeps those states for the gradient: small ones; large would outgrow all inputs."""
    return padded(d_state) * padded(v.shape[-1]) <= 32 * 32


def padded(width: int) -> int:
    """The block width that holds `width`: a power of two that the matrix units accept."""
    return max(16, int(triton.next_power_of_2(width)))


@triton.jit
def dot(x, y, operand: tl.constexpr):
    """x @ y with operands rounded to `operand` and fp32 sums; fp32 operands lose nothing to tf32."""
    return tl.dot(x.to(operand), y.to(operand), input_precision="tf32x3")


@triton.jit
def turned_operand(x, operand: tl.constexpr):
    """x^T as the right operand of a product, for an x that is a product's result.

    The registers that hold x hold x^T as an operand. Rounding comes after turning, because the compiler takes a turned
    operand of 16 bits through shared memory.
    """
    return tl.trans(x).to(operand)


@triton.jit
def right_operand(x, operand: tl.constexpr):
    """x as the right operand of a product, for an x that is a product's result: by way of shared memory.

    Left alone, the compiler would exchange it between threads in several times as many instructions.
    """
    return tl.trans(tl.trans(x).to(operand))


@triton.jit
def exp2(x):
    """2^x by the special-function unit, denormal results flushed to zero.

    Written as assembly so that the compiler keeps one copy: it would rather repeat an exponential in every layout that
    uses it than convert the result, and exponentials are what these kernels wait for.
    """
    if INTERPRETED:
        return tl.exp2(x)
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", constraints="=f,f", args=[x], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), by the exponential of a number <= 0 and an approximate reciprocal (1 ulp)."""
    e = exp2(-tl.abs(x) * LOG2E)
    share = 1.0 + e
    if INTERPRETED:
        share = 1.0 / share
    else:
        share = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", constraints="=f,f", args=[share], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.where(x < 0, e, 1.0) * share


@triton.jit
def tied(x, step):
    """int32 `x`, but as if it depended on the loop's step.

    Addresses made from it are computed in each step. Else the compiler keeps a 64-bit pointer for every access of a
    loop, more registers than the matrices leave, and spills them.
    """
    if INTERPRETED:
        return x
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", constraints="=r,r,r", args=[x, step], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def prefetch(base, rows, row_stride, live):
    """Ask for the cache lines of rows (int64) ahead of their loads; costs no registers, unlike loading early.

    Copies to shared memory that the compiler starts early are of little help: with one buffer it can start them only
    after the last use of the present tile, at the end of a step.
    """
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            constraints="=r,l",
            args=[(base + tl.where(live, rows, 0) * row_stride).to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def sum_before(x, rows, columns):
    """Sum of the rows before each row. Not a running sum less the row: where later rows dwarf earlier ones, as under
    fast decay, nothing would be left of these.
    """
    turned = tl.sum(tl.where(rows[:, None] == columns[None, :], x[:, None], 0.0), 0)
    return tl.sum(tl.where(rows[:, None] > columns[None, :], turned[None, :], 0.0), 1)
