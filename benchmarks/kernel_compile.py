"""Compile what `benchmarks/kernels.py time` will run, in several processes: peers try hundreds of configurations.

    for i in $(seq 0 15); do python benchmarks/kernel_compile.py $i 16 & done; wait

Compiled kernels stay in the caches of Triton and Inductor on disk. Process i of n runs every n-th of the other rows,
and of the peers every n-th configuration of each kernel: every call once, without measuring anything.
"""

from __future__ import annotations

import argparse

import kernel_tools
import kernels
from kernel_recurrence import OPS, SHAPES
from kernel_tuning import Tuning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--only", choices=kernels.ALL, nargs="*", default=kernels.ALL)
    parser.add_argument("--shapes", type=int, help="only the first so many shapes of the recurrences")
    options = parser.parse_args()
    kernel_tools.COMPILE_ONLY = True
    tuning = Tuning(share=(options.index, options.count))
    tuning.install()
    jobs = kernels.jobs(options.only, SHAPES[: options.shapes], tuning)
    shared = [job for job in jobs if job.stage and job.op in OPS]
    alone = [job for job in jobs if job not in shared]
    for job in alone[options.index :: options.count] + sorted(shared, key=lambda job: job.stage):
        for _ in job.rows():  # a failure is told by the row
            pass


if __name__ == "__main__":
    main()
