"""OPS: the registry, one row per op. Adding a size or a dtype is an edit here and nowhere else."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference import chain, chain_sfu, matmul, softmax
from reference.spec import Case, Op, Tolerance

__all__ = ["OPS"]

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def _cases(dtypes: tuple[torch.dtype, ...], *sizes: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(Case(size, dtype) for size in sizes for dtype in dtypes)


def _elements(case: Case) -> int:
    return math.prod(case.sizes)


# ---------------------------------------------------------------------------- softmax


def _softmax_inputs(
    case: Case, device: torch.device, generator: torch.Generator
) -> tuple[Tensor, ...]:
    return (torch.randn(case.sizes, dtype=case.dtype, device=device, generator=generator),)


def _softmax_scale(expected: Tensor, x: Tensor) -> Tensor:
    # Relative error: an absolute one would let zeros pass for a long row, whose every entry is
    # small. Below the dtype's smallest normal number the spacing no longer shrinks.
    return expected.clamp_min(torch.finfo(x.dtype).smallest_normal)


# 2^28 elements, so that lengths differ by nothing else. Powers of two, at which kernels change
# plan: quick to see a cliff by. 1000: rows that start within a line; 50257: anywhere. It is GPT-2's
# vocabulary, 128256 Llama 3's.
_SOFTMAX_SWEEP = (
    *(128, 256, 512, 1000, 1024, 2048, 4096, 8192, 16384),
    *(32768, 50257, 65536, 128256, 131072, 262144),
)

# Rows too few to fill the device, as sampling has them: one token of each sequence in a batch. The
# vocabularies of Llama 2 and 3, and on both sides of them. Not one row of 4096, of which more sets
# would be needed to leave the cache than one CUDA graph takes.
_SOFTMAX_FEW = (
    *((1, 32000), (1, 131072)),
    *((8, 128256), (32, 128256)),
    *((64, 4096), (64, 32000), (64, 128256)),
)

SOFTMAX = Op(
    name="softmax",
    axes=("rows", "cols"),
    parameters=("x",),
    make_inputs=_softmax_inputs,
    oracle=softmax.oracle,
    error_scale=_softmax_scale,
    bytes_moved=lambda case: 2 * _elements(case) * case.dtype.itemsize,
    flops=lambda case: 0,
    special_functions=_elements,
    # float32: exp through exp2 loses about |x - max| * 2^-24, and |x - max| < 12 for N(0, 1).
    # 16-bit: one rounding is 2^-11 (float16) or 2^-8 (bfloat16); the ceiling is two ulps.
    tolerances={
        FP32: Tolerance(floor=2e-6, ceiling=2e-5),
        FP16: Tolerance(floor=1e-4, ceiling=2**-9),
        BF16: Tolerance(floor=1e-4, ceiling=2**-6),
    },
    test_cases=_cases(
        (FP32, FP16, BF16), (4, 2), (3, 17), (7, 128), (5, 1000), (2, 1025), (2, 4099), (1, 33000)
    ),
    cpu_cases=_cases((FP32, BF16), (4096, 1024), (32, 131072)),
    benchmark_cases=(
        *(Case((2**28 // cols, cols), BF16) for cols in _SOFTMAX_SWEEP),
        # As many elements say what the dtype costs, as many bytes what the registers do.
        Case((2**16, 4096), FP16),
        Case((2**15, 4096), FP32),
        Case((2**10, 131072), FP32),
        *_cases((BF16,), *_SOFTMAX_FEW),
    ),
)

# ---------------------------------------------------------------------------- chains


def _chain_inputs(
    case: Case, device: torch.device, generator: torch.Generator
) -> tuple[Tensor, ...]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=case.dtype, device=device, generator=generator)

    return draw(*case.sizes), draw(*case.sizes), draw(case.sizes[1])


def _chain_scale(expected: Tensor, x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    # The values that run through the chain are of order one, so cancellation near zero is
    # judged against one, not against the small result (a contracted multiply-add may keep
    # bits there that two roundings drop).
    return expected.abs().clamp_min(1.0)


_CHAIN_CASES = dict(
    # (rows, cols): odd columns, one column, a row longer than a tile.
    test_cases=_cases((FP32, FP16, BF16), (64, 257), (3, 1), (1, 4099), (16, 512), (5, 1000)),
    cpu_cases=_cases((FP32, BF16), (256, 4096), (1024, 4096)),
    benchmark_cases=(
        *_cases((BF16,), (2**8, 4096), (2**12, 4096), (2**16, 4096)),
        *_cases((FP32, FP16), (2**12, 4096)),
    ),
)


def _chain_bytes(case: Case) -> int:
    return (3 * _elements(case) + case.sizes[1]) * case.dtype.itemsize


CHAIN = Op(
    name="chain",
    axes=("rows", "cols"),
    parameters=("x", "residual", "bias"),
    make_inputs=_chain_inputs,
    oracle=chain.oracle,
    error_scale=_chain_scale,
    bytes_moved=_chain_bytes,
    flops=lambda case: 0,
    special_functions=lambda case: _elements(case) * sum(step.special for step in chain.STEPS),
    # 16-bit: eager rounds forty times, and its largest error over 2^28 elements reaches 1.2e-1 in
    # bfloat16, beside which a kernel could leave a step out. One that rounds once has 3.9e-3 there
    # and 5.9e-4 in float16, and may have twice that.
    tolerances={
        FP32: Tolerance(floor=2e-6, ceiling=2e-5),
        FP16: Tolerance(floor=1e-3, ceiling=2e-2, once=1.2e-3),
        BF16: Tolerance(floor=4e-3, ceiling=1.6e-1, once=8e-3),
    },
    **_CHAIN_CASES,
)

CHAIN_SFU = Op(
    name="chain_sfu",
    axes=CHAIN.axes,
    parameters=CHAIN.parameters,
    make_inputs=_chain_inputs,
    oracle=chain_sfu.oracle,
    error_scale=_chain_scale,
    bytes_moved=_chain_bytes,
    flops=lambda case: 0,
    special_functions=lambda case: _elements(case) * sum(step.special for step in chain_sfu.STEPS),
    tolerances=CHAIN.tolerances,
    **_CHAIN_CASES,
)

# ---------------------------------------------------------------------------- matmul


def _matmul_inputs(
    case: Case, device: torch.device, generator: torch.Generator
) -> tuple[Tensor, ...]:
    m, k, n = case.sizes

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=case.dtype, device=device, generator=generator)

    return draw(m, k), draw(n, k).t() if case.layout == "nk" else draw(k, n)


def _matmul_scale(expected: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # An entry that happens to be near zero is judged against the size its row and column give
    # it: |a_i| |b_j| / sqrt(K), which is what random signs make of |a_i| |b_j|.
    rows = torch.linalg.vector_norm(a, dim=-1, dtype=torch.float64).unsqueeze(-1)
    cols = torch.linalg.vector_norm(b, dim=0, dtype=torch.float64)
    typical = rows * cols / math.sqrt(max(a.shape[-1], 1))
    return torch.maximum(expected.abs(), typical).clamp_min(torch.finfo(a.dtype).smallest_normal)


def _matmul_bytes(case: Case) -> int:
    m, k, n = case.sizes
    return (m * k + k * n + m * n) * case.dtype.itemsize


def _weights(dtype: torch.dtype, *sizes: tuple[int, int, int]) -> tuple[Case, ...]:
    return tuple(Case(size, dtype, "nk") for size in sizes)


# One token of each sequence in a batch of so many, times the weights of a model: Llama 3 8B's
# attention, its feed-forward up and down and its vocabulary, and Llama 3 70B's feed-forward. Stored
# as torch.nn.Linear holds them. Their bytes are what takes the time.
_DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_DECODE_WEIGHTS = ((4096, 14336), (14336, 4096))
# At these the ends and the middle: what comes between is seen at the others.
_MORE_DECODE_BATCHES = (1, 16, 64)
_MORE_DECODE_WEIGHTS = ((4096, 4096), (8192, 28672), (4096, 128256))

MATMUL = Op(
    name="matmul",
    axes=("m", "k", "n"),
    parameters=("a", "b"),
    make_inputs=_matmul_inputs,
    oracle=matmul.oracle,
    error_scale=_matmul_scale,
    bytes_moved=_matmul_bytes,
    flops=lambda case: 2 * math.prod(case.sizes),
    special_functions=lambda case: 0,
    # float32: TF32 would give 3e-4 and must fail.
    tolerances={
        FP32: Tolerance(floor=2e-6, ceiling=5e-5),
        FP16: Tolerance(floor=2e-4, ceiling=4e-3),
        BF16: Tolerance(floor=1e-3, ceiling=2e-2),
    },
    # (m, k, n): one, odd, not a multiple of any tile, taller than a tile.
    test_cases=tuple(
        Case(size, dtype, layout)
        for size in ((1, 64, 48), (33, 40, 17), (64, 128, 96), (130, 72, 264), (3, 129, 65))
        for dtype in (FP32, FP16, BF16)
        for layout in ("kn", "nk")
    ),
    cpu_cases=(
        Case((1024, 1024, 1024), FP32, "nk"),
        Case((1024, 1024, 1024), BF16, "nk"),
        Case((1, 4096, 4096), FP32, "nk"),
    ),
    benchmark_cases=(
        # Squares: as few bytes for each operation as there can be. Both layouts and both 16-bit
        # dtypes at the size where a tensor core kernel fills the device once.
        *_weights(BF16, (4096, 4096, 4096), (8192, 8192, 8192)),
        Case((4096, 4096, 4096), BF16, "kn"),
        Case((4096, 4096, 4096), FP16, "nk"),
        # A prompt of 4096 tokens through a feed-forward.
        *_weights(BF16, (4096, 4096, 14336), (4096, 14336, 4096)),
        *_weights(BF16, *((m, *weight) for weight in _DECODE_WEIGHTS for m in _DECODE_BATCHES)),
        *_weights(
            BF16, *((m, *size) for size in _MORE_DECODE_WEIGHTS for m in _MORE_DECODE_BATCHES)
        ),
        # No tensor cores: TF32 is off.
        Case((2048, 2048, 2048), FP32, "nk"),
    ),
)

OPS: dict[str, Op] = {op.name: op for op in (SOFTMAX, CHAIN, CHAIN_SFU, MATMUL)}
