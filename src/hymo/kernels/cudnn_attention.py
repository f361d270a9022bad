"""Packed causal attention by cuDNN's ragged kernels: on Hopper about twice as fast as flash attention 2.

PyTorch's own `scaled_dot_product_attention` reaches cuDNN for dense batches only, so the graph is built here through
NVIDIA's `nvidia-cudnn-frontend` (the extra `cuda`). A graph is fixed for one number of documents; that number is
rounded up to a power of two with empty documents, and graphs are kept, so a run builds a handful.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from hymo.kernels.arguments import with_empty_documents

_SIGNATURE = "Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, int longest, float scale"
torch.library.define("hymo::cudnn_attention", f"({_SIGNATURE}) -> (Tensor, Tensor)")
torch.library.define(
    "hymo::cudnn_attention_backward", f"(Tensor do, Tensor o, Tensor stats, {_SIGNATURE}) -> (Tensor, Tensor, Tensor)"
)


def packed_attention_cudnn(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Causal attention of each document, and the log-sum-exp of its scores.

    Args:
        q: queries (tokens, Hq, d) in bf16 or fp16.
        k: keys (tokens, Hkv, d); query head i reads group i // (Hq // Hkv).
        v: values (tokens, Hkv, dv).
        cu_seqlens: int32 boundaries from 0 to the number of tokens, on the device.
        longest: no document is longer than this.
        scale: factor on the scores.

    Returns:
        Outputs (tokens, Hq, dv), and the log-sum-exps (tokens, Hq, 1) in fp32.
    """
    o, stats = torch.ops.hymo.cudnn_attention(q, k, v, cu_seqlens, longest, scale)
    return o, stats


@lru_cache(maxsize=8)
def cudnn_obstacle(device: torch.device) -> str:
    """Why cuDNN's ragged attention can't run on this device, or an empty string."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "it needs an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < (9, 0):
        return "it is no faster than flash attention before Hopper"
    if importlib.util.find_spec("cudnn") is None:
        return "the package nvidia-cudnn-frontend is not installed"
    try:
        version = int(importlib.import_module("cudnn").backend_version())
    except (ImportError, OSError, RuntimeError) as error:
        return f"nvidia-cudnn-frontend can't be loaded ({error})"
    return "" if version >= 90600 else f"it needs cuDNN 9.6, this is {version}"


@lru_cache(maxsize=64)
def cudnn_refusal(device: torch.device, dtype: torch.dtype, heads: tuple[int, int], widths: tuple[int, int]) -> str:
    """Why cuDNN does not take these shapes, or an empty string: both graphs are built once for a small case.

    Args:
        device: a CUDA device without a `cudnn_obstacle`.
        dtype: bf16 or fp16.
        heads: of the queries, and of keys and values.
        widths: of queries and keys, and of values.
    """
    shape = _Shape(device, dtype, 64, 64, 64, *heads, *widths, 1.0, torch.are_deterministic_algorithms_enabled())
    try:
        for backward in (False, True):
            _Graph(shape, backward)
    except Exception as error:  # whatever cuDNN says: flash attention takes over
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(f"packed attention runs by flash attention, cuDNN refuses: {text}", stacklevel=2)
        return text
    return ""


@dataclass(frozen=True)
class _Shape:
    """Everything that a graph depends on."""

    device: torch.device
    dtype: torch.dtype
    tokens: int
    documents: int
    longest: int
    heads: int
    groups: int
    width: int
    value_width: int
    scale: float
    deterministic: bool

    @classmethod
    def of(cls, q: Tensor, v: Tensor, documents: int, longest: int, scale: float) -> _Shape:
        exact = torch.are_deterministic_algorithms_enabled()
        size = q.shape[0], documents, longest, q.shape[1], v.shape[1], q.shape[2], v.shape[2]
        return cls(q.device, q.dtype, *size, scale, exact)

    def ragged(self, heads: int, width: int) -> tuple[list[int], list[int]]:
        """Sizes (documents, heads, longest, width) and strides of a (tokens, heads, width) tensor."""
        return [self.documents, heads, self.longest, width], [self.longest * heads * width, width, heads * width, 1]


class _Graph:
    """A built graph with the names of its tensors."""

    def __init__(self, shape: _Shape, backward: bool) -> None:
        cudnn: Any = importlib.import_module("cudnn")
        kinds = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}
        single, whole, index = cudnn.data_type.FLOAT, cudnn.data_type.INT32, cudnn.data_type.INT64
        kind = kinds[shape.dtype]
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=single, compute_data_type=single, handle=_handle(shape.device)
        )
        one = [1, 1, 1, 1]

        def vector(name: str, length: int, data_type: Any) -> Any:
            return graph.tensor(dim=[length, 1, 1, 1], stride=one, data_type=data_type, name=name)

        names = {"lengths": vector("lengths", shape.documents, whole)}
        offsets: dict[tuple[int, int], Any] = {}

        def offset(heads: int, width: int) -> Any:
            """First elements of the documents: one vector for all tensors of a row size."""
            if (heads, width) not in offsets:
                offsets[heads, width] = vector(f"offset_{heads}_{width}", shape.documents + 1, index)
            return offsets[heads, width]

        def tensor(name: str, heads: int, width: int) -> Any:
            dim, stride = shape.ragged(heads, width)
            names[name] = graph.tensor(dim=dim, stride=stride, data_type=kind, name=name)
            names[name].set_ragged_offset(offset(heads, width))
            return names[name]

        query, value = (shape.heads, shape.width), (shape.groups, shape.value_width)
        q, k, v = tensor("q", *query), tensor("k", shape.groups, shape.width), tensor("v", *value)
        options = {
            "attn_scale": shape.scale,
            "use_padding_mask": True,
            "seq_len_q": names["lengths"],
            "seq_len_kv": names["lengths"],
            "use_causal_mask": True,
        }
        sizes, strides = shape.ragged(shape.heads, 1)
        if backward:
            o, do = tensor("o", shape.heads, shape.value_width), tensor("do", shape.heads, shape.value_width)
            names["stats"] = graph.tensor(dim=sizes, stride=strides, data_type=single, name="stats")
            names["stats"].set_ragged_offset(offset(shape.heads, 1))
            found = graph.sdpa_backward(
                q=q,
                k=k,
                v=v,
                o=o,
                dO=do,
                stats=names["stats"],
                max_total_seq_len_q=shape.tokens,
                max_total_seq_len_kv=shape.tokens,
                use_deterministic_algorithm=shape.deterministic,
                **options,
            )
            outputs = dict(zip(("dq", "dk", "dv"), found, strict=True))
            places = {"dq": query, "dk": (shape.groups, shape.width), "dv": value}
        else:
            o, stats = graph.sdpa(q=q, k=k, v=v, is_inference=False, **options)
            stats.set_output(True).set_data_type(single).set_dim(sizes).set_stride(strides)
            stats.set_ragged_offset(offset(shape.heads, 1))
            names["stats"], outputs, places = stats, {"o": o}, {"o": (shape.heads, shape.value_width)}
        for name, out in outputs.items():
            dim, stride = shape.ragged(*places[name])
            out.set_output(True).set_data_type(kind).set_dim(dim).set_stride(stride)
            out.set_ragged_offset(offset(*places[name]))
            names[name] = out
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.names, self.offsets = names, offsets
        self.graph, self.workspace, self.device = graph, graph.get_workspace_size(), shape.device

    def run(self, cu_seqlens: Tensor, **tensors: Tensor) -> None:
        """Execute on the current stream; `cu_seqlens` (documents + 1,) int64, tensors by name."""
        cudnn: Any = importlib.import_module("cudnn")
        handle = _handle(self.device)
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream(self.device).cuda_stream)
        pack: dict[Any, Tensor] = {self.names["lengths"]: cu_seqlens.diff().to(torch.int32)}
        for (heads, width), place in self.offsets.items():
            pack[place] = cu_seqlens * (heads * width)
        pack |= {self.names[name]: tensor for name, tensor in tensors.items()}
        workspace = torch.empty(max(1, self.workspace), dtype=torch.uint8, device=self.device)
        self.graph.execute(pack, workspace, handle=handle)


@lru_cache(maxsize=128)
def _graph(shape: _Shape, backward: bool) -> _Graph:
    return _Graph(shape, backward)


@lru_cache(maxsize=8)
def _handle(device: torch.device) -> Any:
    with torch.cuda.device(device):
        return importlib.import_module("cudnn").create_handle()


def _forward(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, scale: float) -> tuple[Tensor, Tensor]:
    bounds = with_empty_documents(cu_seqlens.to(torch.int64))
    o, stats = _forward_shapes(q, k, v, cu_seqlens, longest, scale)
    graph = _graph(_Shape.of(q, v, len(bounds) - 1, longest, scale), False)
    graph.run(bounds, q=q.contiguous(), k=k.contiguous(), v=v.contiguous(), o=o, stats=stats)
    return o, stats


def _backward(
    do: Tensor,
    o: Tensor,
    stats: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    bounds = with_empty_documents(cu_seqlens.to(torch.int64))
    grads = {
        f"d{name}": torch.empty_like(x, memory_format=torch.contiguous_format)
        for name, x in zip("qkv", (q, k, v), strict=True)
    }
    inputs = {"q": q, "k": k, "v": v, "o": o, "do": do, "stats": stats}
    graph = _graph(_Shape.of(q, v, len(bounds) - 1, longest, scale), True)
    graph.run(bounds, **{name: x.contiguous() for name, x in inputs.items()}, **grads)
    return grads["dq"], grads["dk"], grads["dv"]


def _forward_shapes(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty((*q.shape[:2], 1), dtype=torch.float32)


def _backward_shapes(
    do: Tensor,
    o: Tensor,
    stats: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, cu_seqlens, ctx.longest, ctx.scale = inputs
    ctx.save_for_backward(*output, q, k, v, cu_seqlens)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, do: Tensor | None, _stats: Tensor | None) -> tuple[Any, ...]:
    if do is None:
        return None, None, None, None, None, None
    found = torch.ops.hymo.cudnn_attention_backward(do, *ctx.saved_tensors, ctx.longest, ctx.scale)
    return (*found, None, None, None)


torch.library.impl("hymo::cudnn_attention", "CUDA", _forward)
torch.library.impl("hymo::cudnn_attention_backward", "CUDA", _backward)
torch.library.register_fake("hymo::cudnn_attention", _forward_shapes)
torch.library.register_fake("hymo::cudnn_attention_backward", _backward_shapes)
torch.library.register_autograd("hymo::cudnn_attention", _gradient, setup_context=_keep)
