"""Every kernel that CuPy would ask for compiles with NVRTC, for old and new cards, without a GPU.

What the compiler made of them is read off the cubin: no spills, 16-byte accesses, and as many
special functions an element as the op's bound counts on.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch

from cuda_impl import chain as cuda_chain
from cuda_impl import chain_sfu as cuda_chain_sfu
from cuda_impl import pointwise, rawmodule, softmax
from reference import chain, chain_sfu

nvrtc = pytest.importorskip(
    "cuda.bindings.nvrtc", reason="needs NVRTC's Python bindings: pip install cuda-bindings"
)

DTYPES = tuple(rawmodule.CTYPES)
CAPABILITIES = ((8, 0), (9, 0), (10, 0))
BY_NAME = pytest.mark.parametrize(
    "capability", CAPABILITIES, ids=lambda capability: "sm_{}{}".format(*capability)
)
CHAINS = {"chain": chain.STEPS, "chain_sfu": chain_sfu.STEPS}


def cubin_of(header: str, expressions: tuple[str, ...], capability: tuple[int, int]) -> bytes:
    """What NVRTC makes of the source and the flags that rawmodule gives to CuPy."""

    def checked(result: tuple[object, ...]) -> object:
        status, *value = result
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            raise AssertionError(f"{header} for {capability}: {log.decode()}")
        return value[0] if value else None

    source = rawmodule.source_of(header).encode()
    _, program = nvrtc.nvrtcCreateProgram(source, b"kernel.cu", 0, [], [])
    for expression in expressions:
        checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
    options = [option.encode() for option in rawmodule.nvrtc_options(capability)]
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    for expression in expressions:
        checked(nvrtc.nvrtcGetLoweredName(program, expression.encode()))
    cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin


def dump(cubin: bytes, tmp_path: Path, option: str) -> str:
    """What cuobjdump, which Triton's package carries, says of a cubin."""
    spec = importlib.util.find_spec("triton")
    assert spec
    assert spec.origin
    tool = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    (tmp_path / "kernel.cubin").write_bytes(cubin)
    command = [tool, option, tmp_path / "kernel.cubin"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def instructions(listing: str) -> Counter[str]:
    """How often each instruction stands in a listing of SASS, with its modifiers."""
    return Counter(
        re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", listing),
    )


@functools.cache
def softmax_plans(itemsize: int, most_blocks: int) -> tuple[softmax.RowPlan, ...]:
    """All that `registers_plan` can answer: every length to where only the online kernel is left,
    in steps that no plan's range is shorter than."""
    columns = (*range(1, 1024), *range(1024, 2**18 + 2**13, 1024), 2**18)
    plans = {
        softmax.registers_plan(
            2**20, cols, itemsize, whole, processors=132, most_blocks=most_blocks
        )
        for cols in columns
        for whole in (True, False)
    }
    return tuple(sorted(plans))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@BY_NAME
def test_softmax_registers(dtype: torch.dtype, capability: tuple[int, int], tmp_path: Path) -> None:
    most_blocks = 16 if capability >= (9, 0) else 1
    plans = softmax_plans(dtype.itemsize, most_blocks)
    assert max(plan.cluster for plan in plans) == most_blocks
    assert any(plan.elements == 0 for plan in plans)
    expressions = tuple(plan.expression(dtype) for plan in plans)
    cubin = cubin_of("softmax_registers.cuh", expressions, capability)
    # On sm_80 float32 rows with ragged ends want four registers more than there are.
    # On sm_100 the longest packed rows want as many.
    allowed = {(8, 0): 16, (9, 0): 0, (10, 0): 16}[capability]
    usage = dump(cubin, tmp_path, "--dump-resource-usage")
    assert_nothing_spilled(usage, len(expressions), allowed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@BY_NAME
def test_softmax_block(dtype: torch.dtype, capability: tuple[int, int], tmp_path: Path) -> None:
    ctype = rawmodule.CTYPES[dtype]
    expression = f"softmax_block_kernel<{ctype}, {softmax.block_plan()}>"
    cubin = cubin_of("softmax_block.cuh", (expression,), capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), 1)


def assert_nothing_spilled(usage: str, kernels: int, allowed: int = 0) -> None:
    """kernels: how many there must be; allowed: bytes of stack a thread."""
    found = re.findall(r"Function (\S+):\s*REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", usage)
    assert len(found) == kernels
    spilled = [row for row in found if int(row[2]) > allowed or int(row[3])]
    assert not spilled, f"(name, registers, stack, local memory): {spilled}"


@pytest.mark.parametrize("op", CHAINS)
@BY_NAME
def test_chain_packed(op: str, capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(
        plan.expression(op, dtype) for dtype in DTYPES for plan in packed_plans(op, dtype)
    )
    cubin = cubin_of(f"{op}_packed.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


@pytest.mark.parametrize("op", ["softmax", *CHAINS])
@BY_NAME
def test_naive(op: str, capability: tuple[int, int]) -> None:
    expressions = tuple(f"{op}_naive_kernel<{ctype}>" for ctype in rawmodule.CTYPES.values())
    assert cubin_of(f"{op}_naive.cuh", expressions, capability)


def packed_plans(op: str, dtype: torch.dtype) -> tuple[pointwise.PackedPlan, ...]:
    """All that `packed_plan` can answer: many, few, one row of whole packs; others; misaligned."""

    choose = {"chain": cuda_chain, "chain_sfu": cuda_chain_sfu}[op].packed_plan

    def plan(rows: int, cols: int, offset: int = 0) -> pointwise.PackedPlan:
        # Memory that is only asked for its address and size is never touched.
        x, out = (torch.empty(rows * cols + offset, dtype=dtype)[offset:] for _ in range(2))
        bias = torch.empty(cols, dtype=dtype)
        return pointwise.plan_for(x.view(rows, cols), x.view(rows, cols), bias, out, choose)

    sizes = ((2**16, 2**10), (4, 64), (1, 64), (4, 65), (4, 64, 1))
    plans = tuple(dict.fromkeys(plan(*size) for size in sizes))
    # Of a single row, chain_sfu's plan is that of many.
    assert len(plans) == {"chain": 5, "chain_sfu": 4}[op]
    return plans


def test_softmax_moves_sixteen_bytes_and_takes_one_exponential_an_element(tmp_path: Path) -> None:
    plan = softmax.registers_plan(2**18, 1024, 2, True, processors=132, most_blocks=16)
    expression = plan.expression(torch.bfloat16)
    cubin = cubin_of("softmax_registers.cuh", (expression,), (9, 0))
    found = instructions(dump(cubin, tmp_path, "-sass"))
    packs = plan.elements // 8
    wide = {"LDG": packs, "STG": packs}
    for access, count in wide.items():
        widths = {name: n for name, n in found.items() if name.startswith(access)}
        assert sum(widths.values()) == count
        assert all(".128" in name for name in widths), widths
    # One more for the thread's own factor.
    assert sum(n for name, n in found.items() if name == "MUFU.EX2") <= plan.elements + 2
    # The issue slots of an SM at the copy's rate: 26 an element (two 2-byte accesses each).
    assert sum(found.values()) <= 26 * plan.elements


@pytest.mark.parametrize("op", CHAINS)
def test_chain_stays_under_its_bound(op: str, tmp_path: Path) -> None:
    plan = packed_plans(op, torch.bfloat16)[0]
    cubin = cubin_of(f"{op}_packed.cuh", (plan.expression(op, torch.bfloat16),), (9, 0))
    found = instructions(dump(cubin, tmp_path, "-sass"))
    elements = plan.packs * 8
    special = sum(step.special for step in CHAINS[op])
    if op == "chain_sfu":
        # Every second one, a sigmoid, is a polynomial.
        special //= 2
        bound = special * elements * 128 // 16
    else:
        # The issue slots of an SM at the copy's rate: 42 an element (three 2-byte accesses).
        bound = 42 * elements
    assert {name: n for name, n in found.items() if name.startswith("MUFU")} == {
        "MUFU.TANH": special * elements
    }
    assert sum(found.values()) <= bound
    assert {name for name in found if name[:3] in ("LDG", "STG") and ".128" not in name} == set()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rung", ["exact", "approx", "tanh", "packed"])
def test_what_each_rung_of_chain_sfu_asks_of_the_special_function_unit(
    rung: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    plan = packed_plans("chain_sfu", dtype)[0]
    expression = plan.expression("chain_sfu", dtype, rung)
    cubin = cubin_of(f"chain_sfu_{rung}.cuh", (expression,), (9, 0))
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), 1)
    found = instructions(dump(cubin, tmp_path, "-sass"))
    results = sum(n for name, n in found.items() if name.startswith("MUFU"))
    elements = plan.packs * 16 // dtype.itemsize
    narrow = dtype != torch.float32
    wanted = {"approx": 32, "tanh": 16 if narrow else 32, "packed": 8 if narrow else 16}
    if rung == "exact":
        # The library's branches ask for no fewer, and for far more of everything else.
        assert results >= 32 * elements
        assert sum(found.values()) > 300 * elements
    else:
        assert results == wanted[rung] * elements


@BY_NAME
def test_chain_streamed(capability: tuple[int, int], tmp_path: Path) -> None:
    plan = cuda_chain.streamed_plan(4096, 512, 132)
    assert plan is not None
    expressions = tuple(plan.expression(dtype) for dtype in DTYPES)
    cubin = cubin_of("chain_streamed.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


def test_streaming_threads_compute_while_their_next_rows_arrive(tmp_path: Path) -> None:
    plan = cuda_chain.streamed_plan(4096, 512, 132)
    assert plan is not None
    cubin = cubin_of("chain_streamed.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    # x and residual: three rows before the loop, and one in each of its four rows.
    copies = {name: n for name, n in found.items() if name.startswith("LDGSTS")}
    assert copies == {"LDGSTS.E.BYPASS.128": 2 * (2 * plan.depth - 1)}
    # It goes on while all but the oldest of those are on their way.
    assert set(re.findall(r"DEPBAR\.LE SB0, (\w+)", listing)) == {hex(plan.depth - 2)}
    assert found["MUFU.TANH"] == plan.depth * 8 * 2


def test_streamed_plans() -> None:
    plan = cuda_chain.streamed_plan
    # 4096 rows in four chunks of columns: 330 blocks a chunk fit at once, so 13 rounds, for which
    # 316 are enough.
    assert plan(4096, 512, 132) == (128, 4, 1280, 316)
    for rows, packs, processors in itertools.product(
        (264, 1000, 65536), (128, 512, 4096), (8, 132)
    ):
        found = plan(rows, packs, processors)
        if found is None:
            continue
        chunks = -(-packs // found.threads)
        assert found.groups * chunks <= max(processors * 10, chunks)
        rounds = -(-rows // found.groups)
        # One group fewer would need a round more.
        assert found.groups == 1 or -(-rows // (found.groups - 1)) > rounds
    # Ragged: half of the threads would have no columns. Few rows: nothing to walk down.
    assert plan(4096, 64, 132) is None
    assert plan(100, 128, 132) is None


def test_a_cluster_loads_before_it_waits_for_its_peers(tmp_path: Path) -> None:
    plan = softmax.registers_plan(2**12, 65536, 2, True, processors=132, most_blocks=16)
    cubin = cubin_of("softmax_registers.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    order = re.findall(r"\b(UCGABAR_ARV|UCGABAR_WAIT|LDG|STAS|MEMBAR)\b", listing)
    # And no fence for the whole device, as a second barrier of the cluster would bring.
    assert order == ["UCGABAR_ARV", *["LDG"] * (plan.elements // 8), "UCGABAR_WAIT", "STAS"]
