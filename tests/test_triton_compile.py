"""Every Triton kernel in every configuration compiles to a cubin for compute capability 9.0.

No GPU is needed: this file run as a script, without the interpreter, compiles and prints one JSON
line a configuration; the tests read what the compiler made of each off the cubin. No spills,
16-byte accesses, tensor cores, and as many special functions as the op's bound counts on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
WORKERS = 2
TYPES = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Build:
    """One instance of a kernel.

    types: of the arguments that aren't constants, by name
    aligned: which of them are multiples of 16, as a launch with such arguments would find
    """

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[str, ...]
    options: dict[str, int]


def softmax_builds() -> Iterator[Build]:
    from triton_impl import softmax as tier
    from triton_impl import softmax_few as few
    from triton_impl import softmax_meeting as meeting
    from triton_impl import softmax_online as online
    from triton_impl import softmax_short as short

    for dtype in TYPES:
        size = 4 if dtype == "fp32" else 2
        pointers = {"x_ptr": f"*{dtype}", "y_ptr": f"*{dtype}"}
        for block in (1, 1024, 16384):
            yield Build(
                f"softmax_sketch {dtype} {block}",
                tier.softmax_sketch_kernel,
                pointers | {"n_cols": "i32"},
                {"BLOCK_COLS": block},
                (*pointers, "n_cols"),
                {"num_warps": min(max(block // 512, 4), 32)},
            )
        for most_cols, elements, num_warps in short.ROW_PLANS:
            if most_cols > short.ROWS_LIMIT[size]:
                continue
            for block in (1, 256, 1024, 2048) if most_cols == 2048 else (most_cols,):
                # 8: rows of 1000 and the like, 1: any length.
                for unit in (16, 8, 1):
                    yield Build(
                        f"softmax_rows {dtype} {block} {unit}",
                        short.softmax_rows_kernel,
                        pointers | {"n_rows": "i32", "n_units": "i32"},
                        {"UNIT": unit, "BLOCK_ROWS": elements // block, "BLOCK_COLS": block},
                        tuple(pointers),
                        {"num_warps": num_warps},
                    )
        if size == 2:
            for most_cols, num_warps, registers in short.PACKED_PLANS:
                for whole in (True, False):
                    most = registers if whole else short.RAGGED_REGISTERS[num_warps]
                    yield Build(
                        f"softmax_packed {dtype} {most_cols} {whole}",
                        short.softmax_packed_kernel,
                        pointers | {"n_cols": "i32"},
                        {"WORDS": most_cols // 2, "WHOLE": whole, "PORTABLE": False},
                        tuple(pointers),
                        {"num_warps": num_warps, "maxnreg": most},
                    )
        # Rows that start and end with packs, that don't, and tensors that start between two.
        windows = ((16 // size, True), (16 // size, False), (1, True))
        for _, num_warps in online.ONLINE_PLANS:
            for pack, whole in windows:
                items, lanes = online.online_tile(pack, size, num_warps, whole)
                yield Build(
                    f"softmax_online {dtype} {num_warps} {pack} {whole}",
                    online.softmax_online_kernel,
                    pointers | {"n_cols": "i32"},
                    {"ITEMS": items, "LANES": lanes}
                    | {"PACK": pack, "WHOLE": whole, "EXACT": False},
                    tuple(pointers) if pack > 1 else (),
                    {
                        "num_warps": num_warps,
                        "maxnreg": online.ONLINE_REGISTERS if pack > 1 else None,
                    },
                )
        for room in meeting.SHARE_PACKS:
            for whole in (True, False):
                yield Build(
                    f"softmax_meeting {dtype} {room} {whole}",
                    meeting.softmax_meeting_kernel,
                    pointers
                    | dict.fromkeys(("board_ptr", "counter_ptr"), "*i64")
                    | dict.fromkeys(("n_cols", "n_shares", "share_packs"), "i32"),
                    {"WORDS": 4 * room, "WHOLE": whole} | {"PORTABLE": False, "WAIT": True},
                    (*pointers, "board_ptr"),
                    {
                        "num_warps": meeting.MeetingPlan(1, room, room).num_warps,
                        "maxnreg": meeting.registers(dtype == "fp32", whole),
                    },
                )
        for block in (few.LEAST_SHARE, few.LARGEST_SHARE):
            for pack, whole in windows:
                for kernel in (few.softmax_partials_kernel, few.softmax_shares_kernel):
                    writes = kernel is few.softmax_shares_kernel
                    names = pointers if writes else {"x_ptr": pointers["x_ptr"]}
                    yield Build(
                        f"{kernel.__name__.removesuffix('_kernel')} {dtype} {block} {pack} {whole}",
                        kernel,
                        names
                        | {"partials_ptr": "*fp32", "n_cols": "i32"}
                        | ({"n_partials": "i32"} if writes else {}),
                        {"BLOCK": block, "PACK": pack, "WHOLE": whole}
                        | ({"SLOTS": 128} if writes else {"EXACT": False}),
                        (*names, "partials_ptr") if pack > 1 else ("partials_ptr",),
                        {"num_warps": max(4, block // 1024)},
                    )
    yield Build(
        "softmax_combine",
        few.softmax_combine_kernel,
        {"partials_ptr": "*fp32", "row_ptr": "*fp32", "n_partials": "i32"},
        {"LANES": few.MOST_PARTIALS},
        ("partials_ptr", "row_ptr"),
        {"num_warps": 4},
    )


def chain_builds() -> Iterator[Build]:
    from triton_impl import chain, chain_sfu

    for name, tier in (("chain", chain), ("chain_sfu", chain_sfu)):
        for dtype in TYPES:
            tile = tier.TILE * (2 if (name, dtype) == ("chain", "fp16") else 1)
            # 1 and 2: as narrow as a tile gets, where a thread's bias is less than a pack.
            wide = ((16, tier.TILE_COLS), (8, tier.TILE_COLS))
            for unit, cols in (*wide, (1, 256), (1, 1), (2, 2)):
                names = ("x_ptr", "residual_ptr", "bias_ptr", "y_ptr")
                yield Build(
                    f"{name} {dtype} {cols} {unit}",
                    getattr(tier, f"{name}_kernel"),
                    dict.fromkeys(names, f"*{dtype}") | {"n_rows": "i32", "n_units": "i32"},
                    {
                        "UNIT": unit,
                        "BLOCK_ROWS": tile // cols,
                        "BLOCK_COLS": cols,
                        "MODE": "wide" if dtype == "fp32" else "narrow",
                    },
                    names,
                    {"num_warps": tier.NUM_WARPS},
                )


def matmul_builds() -> Iterator[Build]:
    from triton_impl import matmul as tier
    from triton_impl import matmul_streamk as streamk

    sizes = {"size_m": "i32", "size_n": "i32", "size_k": "i32"}

    def tile(plan: Any) -> dict[str, Any]:
        return {
            "BLOCK_M": plan.block_m,
            "BLOCK_N": plan.block_n,
            "BLOCK_K": plan.block_k,
            "BAND": tier.BAND,
            "WIDEN": False,
        }

    def options(plan: Any) -> dict[str, int]:
        return {"num_warps": getattr(plan, "num_warps", 4), "num_stages": plan.num_stages}

    plans = (*(plan for _, plan in tier.DECODE_PLANS), tier.LARGE, tier.MEDIUM, tier.SMALL)
    for plan in plans:
        for dtype in ("fp16", "bf16"):
            for layout in ("nk", "kn"):
                m, n, k = plan.block_m, plan.block_n, plan.block_k
                blocks = {
                    "a_desc": [m, k],
                    "b_desc": [n, k] if layout == "nk" else [k, n],
                    "y_desc": [m, n // 2 if plan.halves else n],
                }
                yield Build(
                    f"matmul_descriptor {dtype} {layout} {m}x{n}x{k}",
                    tier.matmul_descriptor_kernel,
                    {name: f"tensordesc<{dtype}{block}>" for name, block in blocks.items()} | sizes,
                    tile(plan) | {"B_IS_NK": layout == "nk", "HALVES": plan.halves},
                    tuple(sizes),
                    options(plan),
                )
    for plan in streamk.STREAM_PLANS:
        for dtype in ("fp16", "bf16"):
            m, n, k = plan.block_m, streamk.COLUMNS.value, streamk.DEPTH.value
            yield Build(
                f"matmul_parts {dtype} {m}",
                streamk.matmul_parts_kernel,
                {"a_desc": f"tensordesc<{dtype}[{m}, {k}]>"}
                | {"b_desc": f"tensordesc<{dtype}[{n}, {k}]>"}
                | {"parts_ptr": "*fp32", "share": "i32"}
                | sizes,
                {"BLOCK_M": m, "SWAP": plan.swap, "WIDEN": False, "EARLY": True},
                ("parts_ptr", "size_n", "size_k"),
                options(plan),
            )
            yield Build(
                f"matmul_sum {dtype} {m}",
                streamk.matmul_sum_kernel,
                {"parts_ptr": "*fp32", "y_ptr": f"*{dtype}", "share": "i32"} | sizes,
                {"BLOCK_M": m, "EARLY": True},
                ("parts_ptr", "y_ptr", "size_n", "size_k"),
                {"num_warps": 4, "launch_pdl": True},
            )
    for dtype in TYPES:
        plan = tier.POINTER_FP32 if dtype == "fp32" else tier.POINTER
        pointers = dict.fromkeys(("a_ptr", "b_ptr", "y_ptr"), f"*{dtype}")
        for layout, one, other in (
            ("nk", "stride_b_k", "stride_b_n"),
            ("kn", "stride_b_n", "stride_b_k"),
        ):
            for how in ("aligned", "unaligned"):
                yield Build(
                    f"matmul_pointer {dtype} {layout} {how}",
                    tier.matmul_pointer_kernel,
                    pointers | sizes | {"stride_a_m": "i32", other: "i32"},
                    tile(plan) | {"stride_a_k": 1, one: 1},
                    (*pointers, *sizes, "stride_a_m", other) if how == "aligned" else (),
                    options(plan),
                )


def compile_share(index: int) -> None:
    """Compile every WORKERS-th build from `index` on, and print what came of each."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    builds = (*softmax_builds(), *chain_builds(), *matmul_builds())
    for build in builds[index::WORKERS]:
        names = build.kernel.arg_names
        source = ASTSource(
            build.kernel,
            {name: build.types.get(name, "constexpr") for name in names},
            {(names.index(name),): value for name, value in build.constants.items()},
            {(names.index(name),): [["tt.divisibility", 16]] for name in build.aligned},
        )
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=build.options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            cubin.write(compiled.asm["cubin"])
            cubin.flush()

            def dump(what: str, path: str = cubin.name) -> str:
                command = [str(cuobjdump), what, path]
                return subprocess.run(command, check=True, capture_output=True, text=True).stdout

            usage = dump("--dump-resource-usage")
            sass = dump("--dump-sass")
        found = {
            "name": build.name,
            "registers": int(re.search(r"REG:(\d+)", usage)[1]),
            # ptxas gives a kernel without arrays a stack only to spill to.
            "stack_bytes": int(re.search(r"STACK:(\d+)", usage)[1]),
            "shared_bytes": compiled.metadata.shared,
            "tensor_cores": sorted(set(re.findall(r"\b(HGMMA|HMMA|FFMA)\b", sass))),
            "special": len(re.findall(r"\bMUFU\.(?:TANH|EX2)\b", sass)),
            "loads": sorted(set(re.findall(r"\b(?:LDG|LDGSTS|UTMALDG)\.[A-Z0-9.]+", sass))),
            "stores": sorted(set(re.findall(r"\b(?:STG|UTMASTG)\.[A-Z0-9.]+", sass))),
        }
        print(json.dumps(found), flush=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By name, what came of every build."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    # A cache of its own, so that everything is compiled here and now.
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, str(index)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(WORKERS)
    ]
    found: dict[str, dict[str, Any]] = {}
    for worker in workers:
        out, err = worker.communicate()
        assert worker.returncode == 0, err
        found |= {figures["name"]: figures for figures in map(json.loads, out.splitlines())}
    return found


def of(compiled: dict[str, dict[str, Any]], pattern: str) -> list[dict[str, Any]]:
    """The builds whose names match, of which there must be some."""
    found = [figures for name, figures in compiled.items() if re.fullmatch(pattern, name)]
    assert found
    return found


def test_nothing_spills(compiled) -> None:
    assert {name for name, figures in compiled.items() if figures["stack_bytes"]} == set()


def test_everything_fits_in_shared_memory(compiled) -> None:
    # What a program may have on compute capability 9.0.
    assert max(figures["shared_bytes"] for figures in compiled.values()) <= 227 * 1024
    # Two programs of 228 KB a multiprocessor, 1 KB of each its own.
    for figures in of(compiled, r"matmul_parts .*"):
        assert figures["shared_bytes"] <= 113 * 1024, figures


def test_aligned_rows_move_16_bytes_at_a_time(compiled) -> None:
    rows = r"rows \S+ (?!1 )\d+ 16|packed .* True|online \S+ \d+ (4|8) True"
    names = rf"softmax_({rows})|chain\S* \S+ 1024 16"
    for figures in (*of(compiled, names), *of(compiled, r"(softmax_rows|chain\S*) \S+16 1024 8")):
        moves = figures["loads"] + figures["stores"]
        assert all(move.endswith(".128") for move in moves), (figures["name"], moves)


def test_rows_that_start_anywhere_move_whole_packs_but_at_their_ends(compiled) -> None:
    ragged = r"(packed|meeting) \S+ \d+|(online|partials|shares) \S+ \d+ (4|8)"
    names = rf"softmax_({ragged}) (True|False)"
    for figures in of(compiled, names):
        ends = 2 if figures["name"].endswith("False") else 0
        if "partials" in figures["name"]:
            # Two floats a program, from one thread.
            moves, ends = figures["loads"], 0
        elif "shares" in figures["name"]:
            # Partials come one by one.
            moves, ends = figures["stores"], ends // 2
        else:
            moves = figures["loads"] + figures["stores"]
        # What programs that meet read of each other.
        strong = [move for move in moves if ".STRONG." in move]
        assert len(strong) == ("meeting" in figures["name"]), (figures["name"], moves)
        narrow = [move for move in moves if not move.endswith(".128") and move not in strong]
        assert len(narrow) <= ends, (figures["name"], moves)


def test_matrix_products_use_the_units_meant_for_them(compiled) -> None:
    for figures in of(compiled, r"matmul_descriptor \S+ \S+ (64|128)x.*"):
        assert "HGMMA" in figures["tensor_cores"], figures
    # Fewer rows than wgmma takes.
    for figures in of(compiled, r"matmul_descriptor \S+ \S+ (16|32)x.*"):
        assert "HMMA" in figures["tensor_cores"], figures
    for figures in of(compiled, r"matmul_descriptor .*"):
        assert all(load.startswith("UTMALDG") for load in figures["loads"]), figures
        assert all(store.startswith("UTMASTG") for store in figures["stores"]), figures
    # Columns of b as wgmma's rows, whatever the rows of a.
    for figures in of(compiled, r"matmul_parts .*"):
        assert figures["tensor_cores"] == ["HGMMA"], figures
        assert all(load.startswith("UTMALDG") for load in figures["loads"]), figures
        assert figures["stores"] == ["STG.E.128"], figures
    for figures in of(compiled, r"matmul_sum .*"):
        assert figures["loads"] == ["LDG.E.128"], figures
    # TF32 would be an HMMA or HGMMA here.
    for figures in of(compiled, r"matmul_pointer fp32 .*"):
        assert figures["tensor_cores"] == ["FFMA"], figures


@pytest.mark.parametrize(
    ("names", "narrow", "thread_elements"),
    [
        (r"chain (fp32|bf16) 1024 16", 2, 16),
        ("chain fp16 1024 16", 2, 32),
        (r"chain_sfu \S+ 1024 16", 8, 32),
    ],
)
def test_special_functions_an_element(
    compiled, names: str, narrow: int, thread_elements: int
) -> None:
    # float32 takes an exponential for each tanh (and a reciprocal).
    for figures in of(compiled, names):
        assert figures["special"] == narrow * thread_elements, figures


@pytest.mark.parametrize(
    ("names", "most"),
    [
        # So many registers a thread leave this many threads a multiprocessor: what the plans say.
        (r"softmax_rows \S+ (4096|8192|16384) 16", 64),
        # Four programs of 16384 columns, three that start anywhere; two of 32768.
        (r"softmax_packed \S+ (\d+ True|32768 False)", 32),
        (r"softmax_packed \S+ 16384 False", 40),
        (r"softmax_meeting (\S+ \d+ True|(bf16|fp16) .*)", 32),
        # 32 warps are the multiprocessor's one program, 16 leave room for a second.
        (r"softmax_online .* (4|8) (True|False)", 64),
        (r"softmax_(partials|shares) .* (4|8) (True|False)", 64),
        (r"chain (fp32|bf16) 1024 16", 64),
        ("chain fp16 1024 16", 96),
        (r"chain_sfu \S+ 1024 16", 80),
    ],
)
def test_registers_leave_room_for_the_threads_planned(compiled, names: str, most: int) -> None:
    for figures in of(compiled, names):
        assert figures["registers"] <= most, figures


if __name__ == "__main__":
    compile_share(int(sys.argv[1]))
