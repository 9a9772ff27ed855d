"""What the compilers made of a kernel: registers, shared memory, spills and bytes of code.

For the extension the figures are read off the shared library with cuobjdump, which Triton's
package carries, so they need no GPU. For Triton and CuPy they are those of the kernels that this
process has loaded. A value that can't be had is None, never a guess.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.implementation import Implementation

__all__ = ["FIELDS", "resources"]

FIELDS = ("binary_bytes", "registers", "shared_bytes", "spill_bytes")

Figures = dict[str, int | None]


def resources(row: Implementation) -> Figures:
    """`FIELDS` of the row's kernels: the largest over the instances in use, bytes summed."""
    found: list[Figures] = []
    if row.tier == "triton":
        found = _triton(row)
    elif row.tier == "cuda":
        found = [
            figures
            for name, figures in _extension().items()
            if any(kernel in name for kernel in row.kernels)
        ]
    elif row.tier == "cupy":
        found = _cupy(row)
    return {
        field: _combine([figures[field] for figures in found], sum if "binary" in field else max)
        for field in FIELDS
    }


def _combine(values: list[int | None], how: Any) -> int | None:
    known = [value for value in values if value is not None]
    return how(known) if known else None


def _triton(row: Implementation) -> list[Figures]:
    module = importlib.import_module(row.module)
    found: list[Figures] = []
    for name in row.kernels:
        # (kernels by key, ...) per device: what this process has compiled and launched.
        caches = getattr(getattr(module, name, None), "device_caches", {})
        for compiled in (kernel for cache in caches.values() for kernel in cache[0].values()):
            found.append(
                {
                    "binary_bytes": len(compiled.asm["cubin"]),
                    "registers": compiled.n_regs,
                    "shared_bytes": compiled.metadata.shared,
                    # Triton counts spilled 4-byte registers.
                    "spill_bytes": 4 * compiled.n_spills,
                }
            )
    return found


def _cupy(row: Implementation) -> list[Figures]:
    loaded = importlib.import_module("cuda_impl.rawmodule").loaded_functions()
    return [
        {
            "binary_bytes": None,
            "registers": function.num_regs,
            "shared_bytes": function.shared_size_bytes,
            "spill_bytes": function.local_size_bytes,
        }
        for name, function in loaded.items()
        if any(kernel in name for kernel in row.kernels)
    ]


@functools.cache
def _extension() -> dict[str, Figures]:
    """By mangled kernel name, from the newest architecture in the library."""
    spec = importlib.util.find_spec("cuda_impl._C")
    tool = _cuobjdump()
    if spec is None or spec.origin is None or tool is None:
        return {}
    listing = _run(tool, "--dump-resource-usage", spec.origin)
    sizes = _code_bytes(_run(tool, "--dump-elf", spec.origin))
    figures: dict[str, Figures] = {}
    for name, usage in re.findall(r"Function (\S+):\s*\n?\s*(REG:.*)", listing):
        values = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", usage)}
        figures[name] = {
            "binary_bytes": sizes.get(name),
            "registers": values.get("REG"),
            "shared_bytes": values.get("SHARED"),
            # A stack frame holds spills or arrays with run-time indices; both go to memory.
            "spill_bytes": values.get("STACK", 0) + values.get("LOCAL", 0),
        }
    return figures


def _code_bytes(elf: str) -> dict[str, int]:
    """Size of each kernel's .text section, from the section table that cuobjdump prints."""
    row = r"^\s*[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s.*\sPROGBITS\s.*\s\.text\.(\S+)$"
    rows = re.findall(row, elf, re.MULTILINE)
    return {name: int(size, 16) for size, name in rows}


def _cuobjdump() -> str | None:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return str(path) if path.is_file() else None


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
