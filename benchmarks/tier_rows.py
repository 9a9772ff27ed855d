"""How the rows of a tier are made: what all of them have alike, by convention, is said here once.

Files and functions go by the names of op and variant: `csrc/kernels/{op}_{variant}.cuh`,
`cuda_impl/{op}.py` with `{variant}_extension` and `{variant}_rawmodule`, `triton_impl/{op}.py`,
`reference/{op}.py`. Imports no tier.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.implementation import Implementation, Needs
from benchmarks.skips import Skip

__all__ = ["compiled_rows", "cuda_rows", "library_row", "triton_row"]


def library_row(op: str, variant: str, function: str, *symbols: str, **more: Any) -> Implementation:
    """A call of the library's. symbols: what the function needs of its file and counts as well;
    more: further fields of the row
    """
    return Implementation(
        op=op,
        tier="library",
        variant=variant,
        module=f"reference.{op}",
        function=function,
        sources=(f"reference/{op}.py:{','.join((function, *symbols))}",),
        effort="call",
        **more,
    )


def triton_row(
    op: str,
    variant: str,
    function: str,
    effort: str,
    kernels: tuple[str, ...],
    *symbols: str,
    more: tuple[str, ...] = (),
    more_kernels: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
) -> Implementation:
    """A Triton kernel. symbols: what counts of its file beside function and kernels; more: sources
    in other files; more_kernels: kernels there
    """
    return Implementation(
        op=op,
        tier="triton",
        variant=variant,
        module=f"triton_impl.{op}",
        function=function,
        sources=(f"triton_impl/{op}.py:{','.join((function, *kernels, *symbols))}", *more),
        effort=effort,
        kernels=(*kernels, *more_kernels),
        needs=("triton",),
        skips=skips,
    )


def cuda_rows(
    op: str,
    variant: str,
    effort: str,
    kernels: tuple[str, ...],
    *needs: Needs,
    symbols: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    more_cuda: tuple[str, ...] = (),
    more_cupy: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
    skips_cupy: tuple[Skip, ...] = (),
    file: str = "",
    plan: str = "",
    plans: str = "",
) -> tuple[Implementation, Implementation]:
    """The two ways to one kernel source: the extension and CuPy.

    file: of cuda_impl/, where that is not `op`.py
    plan: the function that makes it, where that is not `variant`_plan; plans: its file, where that
        is not `file`
    symbols: that both count, of the file with the plan
    more: sources that both count; more_cuda, more_cupy: that one of them does
    skips: of both; skips_cupy: of CuPy's besides
    """
    file = file or op
    kernel_source = f"csrc/kernels/{op}_{variant}.cuh"
    # Some cases would take a first draft minutes.
    patience = 0.2 if effort == "naive" else math.inf
    ways = f"cuda_impl/{file}.py"
    counted = ",".join((plan or f"{variant}_plan", *symbols))

    def functions(way: str) -> tuple[str, ...]:
        if plans:
            return (f"{ways}:{variant}_{way}", f"{plans}:{counted}")
        return (f"{ways}:{variant}_{way},{counted}",)

    return (
        Implementation(
            op=op,
            tier="cuda",
            variant=variant,
            module=f"cuda_impl.{file}",
            function=f"{variant}_extension",
            sources=(
                kernel_source,
                f"csrc/{op}_{variant}.cu",
                *functions("extension"),
                *more,
                *more_cuda,
            ),
            effort=effort,
            kernels=kernels,
            needs=("gpu", "extension", *needs),
            skips=skips,
            patience=patience,
        ),
        Implementation(
            op=op,
            tier="cupy",
            variant=variant,
            module=f"cuda_impl.{file}",
            function=f"{variant}_rawmodule",
            sources=(
                kernel_source,
                *functions("rawmodule"),
                *more,
                *more_cupy,
            ),
            effort=effort,
            kernels=kernels,
            needs=("gpu", "cupy", *needs),
            skips=(*skips, *skips_cupy),
            patience=patience,
        ),
    )


def compiled_rows(
    op: str, *symbols: str, skips: tuple[Skip, ...] = (), skips_max: tuple[Skip, ...] = ()
) -> tuple[Implementation, Implementation]:
    """torch.compile in both its modes. symbols: what is compiled, where that is the project's own;
    skips: of the default mode; skips_max: of max-autotune
    """
    return (
        library_row(
            op,
            "compile",
            "compiled",
            "_compile",
            *symbols,
            needs=("cxx",),
            own_output=True,
            skips=skips,
        ),
        library_row(
            op,
            "compile-max",
            "compiled_max_autotune",
            "_compile",
            *symbols,
            needs=("cxx",),
            own_output=True,
            skips=skips_max,
        ),
    )
