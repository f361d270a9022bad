"""The forward and backward passes of one optimizer step: losses and gradients of a global batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.kernels.arguments import on_device
from hymo.models import HyMo, Window
from hymo.training.device import compute_dtype, has_bf16
from hymo.training.precision import WorkingCopy
from hymo.training.ranks import Ranks
from hymo.training.sharding import ShardedModel


class Passes:
    """Runs a model over micro-batches in the precision and form that a configuration asks for.

    Args:
        master: the model that the optimizers update; sharded in place where ranks share it.
        config: of the run.
        device: where the model is.
        ranks: who trains it together.
    """

    def __init__(self, master: HyMo, config: HyMoConfig, device: torch.device, ranks: Ranks) -> None:
        self.master, self.device, self.ranks = master, device, ranks
        training, dtype = config.training, compute_dtype(config, device)
        self.shards = ShardedModel(master, training, ranks, dtype) if ranks.size > 1 else None
        self.copy: ShardedModel | WorkingCopy = self.shards or WorkingCopy(master, dtype)
        self.observes_apart = observes_apart(device, config)
        self._captures = False
        if device.type != "cuda":
            return
        if training.torch_compile_gdn and self.shards is not None:
            master.compile_units()
        elif training.torch_compile_gdn:
            self._captures = training.cuda_graphs_mla
            self.copy.model.compile_blocks(capture=self._captures)
        if training.moe_mixed_precision and has_bf16(device):
            for mixture in self.copy.model.mixtures():
                mixture.expert_dtype = torch.bfloat16

    def run(
        self,
        windows: Sequence[Window],
        mtp_scale: float,
        record: dict[str, Tensor] | None,
        counts: Sequence[dict[str, int]] | None = None,
    ) -> tuple[dict[str, Tensor], int]:
        """Losses per target over all ranks by name, on the device, and the tokens of the global batch.

        Gradients are left with the parameters that the optimizers update. The host waits for nothing.

        Args:
            windows: this rank's micro-batches, on the CPU.
            mtp_scale: factor on the weights of the prediction heads.
            record: filled with the telemetry of the first micro-batch, if given; of its first row with compiled blocks.
            counts: `count_targets` of the windows, if it is known already.
        """
        model = self.copy.model
        counts = self.count_targets(windows) if counts is None else counts
        mine = [sum(count[name] for count in counts) for name in counts[0]]
        mine.append(sum(window.inputs.numel() for window in windows))
        *targets, tokens = (sum(found) for found in zip(*self.ranks.exchange(mine), strict=True))
        totals = {name: max(1, total) for name, total in zip(counts[0], targets, strict=True)}
        losses: dict[str, Tensor] = {}
        riding = record
        if record is not None and self.observes_apart:
            self._observe(windows[0], record)
            riding = None
        for i, window in enumerate(windows):
            last = i == len(windows) - 1
            self.copy.begin(last)
            if self._captures:
                torch.compiler.cudagraph_mark_step_begin()
            sums = model.loss_sums(self._moved(window), telemetry=riding if i == 0 else None)
            means = {name: value / totals[name] for name, value in sums.items()}
            model.weighted_total(means, mtp_scale).backward()
            self.copy.collect_gradients(last)
            for name, value in means.items():
                losses[name] = losses[name] + value.detach() if name in losses else value.detach()
        if self.ranks.size > 1:
            together = self.ranks.total(torch.stack(list(losses.values())))
            losses = dict(zip(losses, together, strict=True))
            self._sum_counts()
        return losses, tokens

    def _moved(self, window: Window) -> Window:
        inputs, targets = (on_device(x, self.device) for x in (window.inputs, window.targets))
        return Window(inputs, targets, window.cu_seqlens)

    def _observe(self, window: Window, record: dict[str, Tensor]) -> None:
        """Fill `record` from a window's first row, without gradients and without counting it as trained on."""
        model, bounds = self.copy.model, window.cu_seqlens
        bounds = None if bounds is None else bounds[bounds <= window.inputs.shape[1]]
        counts = [mixture.tokens_per_expert for mixture in model.mixtures()]
        before = [count.clone() for count in counts]
        with torch.no_grad():
            model.head_inputs(self._moved(Window(window.inputs[:1], window.targets[:1], bounds)), record, mtp=False)
            for count, kept in zip(counts, before, strict=True):
                count.copy_(kept)
        self.copy.release()

    def count_targets(self, windows: Sequence[Window]) -> list[dict[str, int]]:
        """Targets of each window by head; the host's work alone."""
        return [self.copy.model.target_counts(window) for window in windows]

    def _sum_counts(self) -> None:
        """Sum over ranks what modules counted on their own."""
        counted = [
            tensor
            for module in self.master.modules()
            if callable(ask := getattr(module, "counted_over_ranks", None))
            for tensor in ask()
        ]
        if counted:
            total = self.ranks.total(torch.cat([tensor.flatten() for tensor in counted]))
            sums = total.split([tensor.numel() for tensor in counted])
            torch._foreach_copy_(counted, [s.view_as(t) for s, t in zip(sums, counted, strict=True)])


def observes_apart(device: torch.device, config: HyMoConfig) -> bool:
    """Whether telemetry has a pass of its own: compiled blocks record nothing, and blocks as written keep more."""
    return device.type == "cuda" and config.training.torch_compile_gdn
