"""The machine: what it is, what it lacks, and what state the card is in while it is measured."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

from benchmarks.codesize import ROOT
from benchmarks.implementation import Implementation

__all__ = ["Clocks", "best_device", "datasheet", "environment", "is_hopper", "unmet"]

# Dense rates and memory bandwidth as the vendor states them: shown beside the measured ceilings,
# never used alone. Sources: the data sheets of NVIDIA H200, H100 SXM and A100 SXM 80 GB.
_DATASHEETS: dict[str, dict[str, Any]] = {
    "NVIDIA H200": {"memory": 4.8e12, "matmul": {"bfloat16": 989e12, "float16": 989e12}},
    "NVIDIA H100 80GB HBM3": {"memory": 3.35e12, "matmul": {"bfloat16": 989e12, "float16": 989e12}},
    "NVIDIA A100-SXM4-80GB": {
        "memory": 2.039e12,
        "matmul": {"bfloat16": 312e12, "float16": 312e12},
    },
}

_THROTTLES = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def best_device() -> torch.device:
    """The current CUDA device where there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def is_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def unmet(row: Implementation, device: torch.device) -> str:
    """Why the row can't run on `device`, with the command that mends it; "" where it can."""
    for need in row.needs:
        reason = _unmet(need, device.type)
        if reason:
            return reason
    return ""


@functools.cache
def _unmet(need: str, device_type: str) -> str:
    if need == "gpu":
        return "" if device_type == "cuda" else "needs a CUDA device, and there is none"
    if need == "sm_90":
        return "" if is_hopper() else "needs a Hopper GPU (compute capability 9.0)"
    if need == "triton":
        return _unimportable("triton", "pip install triton")
    if need == "cupy":
        return _unimportable("cupy", "pip install cupy-cuda13x")
    if need == "extension":
        remedy = "python setup.py build_ext --inplace"
        return _unimportable("cuda_impl._C", remedy) or _outdated("cuda_impl._C", remedy)
    if need == "cutlass":
        remedy = "python setup.py build_ext --inplace"
        install = f"pip install --no-deps nvidia-cutlass==4.2.0.0, then {remedy}"
        name = "cuda_impl._cutlass"
        return _unimportable(name, install) or _outdated(name, remedy)
    if need == "cxx":
        compiler = os.environ.get("CXX", "g++")
        if device_type == "cuda" or shutil.which(compiler):
            return ""
        return f"torch.compile needs a C++ compiler, and there is no {compiler}: apt install g++"
    raise ValueError(f"unknown need {need!r}")


def _unimportable(module: str, remedy: str) -> str:
    """Only a module that is not there is an unmet need; one that fails to import is an error."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    return "" if spec is not None else f"{module} is not there: {remedy}"


def _outdated(module: str, remedy: str) -> str:
    """Whether a source has changed since the module was built: it would be timed as today's."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    built = os.path.getmtime(spec.origin)
    is_cutlass = module.endswith("_cutlass")
    sources = [
        path
        for path in (ROOT / "csrc").rglob("*")
        # Each module has sources of its own, by their names, and both include the headers.
        if path.is_file() and (path.suffix == ".h" or ("cutlass" in path.stem) == is_cutlass)
    ]
    newer = [path for path in sources if path.stat().st_mtime > built]
    if not newer:
        return ""
    name = min(newer).relative_to(ROOT)
    return f"{module} is older than {name}: {remedy}"


def datasheet() -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {}
    return _DATASHEETS.get(torch.cuda.get_device_name(), {})


# ---------------------------------------------------------------------------- environment


def environment() -> dict[str, Any]:
    """Everything about this run that is the same for all its rows, but for the ceilings."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **_commit(),
        "machine": _machine(),
        "versions": _versions(),
        "datasheet": datasheet(),
        "settings": {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "allow_bf16_reduced_precision_reduction": (
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
            ),
            "allow_fp16_reduced_precision_reduction": (
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
            ),
        },
    }


def _commit() -> dict[str, Any]:
    """Commit and dirty flag; a copy of the tree without its history takes them from outside."""
    named = os.environ.get("KERNEL_TIERS_COMMIT")
    if named:
        commit, _, mark = named.partition("-")
        return {"commit": commit, "dirty": mark == "dirty"}
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    if not commit:
        return {"commit": "unknown", "dirty": None}
    return {"commit": commit, "dirty": bool(_output("git", "-C", str(ROOT), "status", "--short"))}


def _output(*command: str) -> str:
    """Standard output without its last line break; "" where the command can't be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _machine() -> dict[str, Any]:
    host = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()}",
    }
    if not torch.cuda.is_available():
        name = host["cpu"] or "CPU"
        return {
            "name": name,
            "slug": _slug(str(name)),
            "device": "cpu",
            "l2_bytes": last_level_cache_bytes(),
            **host,
        }
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "slug": _slug(properties.name),
        "device": "cuda",
        # A hash: enough to tell two cards apart, and nothing that names one.
        "uuid_hash": hashlib.sha256(str(properties.uuid).encode()).hexdigest()[:12],
        "sm_count": properties.multi_processor_count,
        "capability": [properties.major, properties.minor],
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver": _driver_version(),
        "cuda": torch.version.cuda,
        **host,
    }


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the next source
    return platform.processor() or platform.machine()


def last_level_cache_bytes() -> int:
    """Of the CPU: the largest cache that Linux lists, else 32 MiB."""
    largest = 0
    for index in range(8):
        try:
            path = f"/sys/devices/system/cpu/cpu0/cache/index{index}/size"
            with open(path, encoding="utf-8") as file:
                largest = max(largest, int(file.read().strip().removesuffix("K")) * 1024)
        except (OSError, ValueError):
            break
    return largest or 32 * 2**20


def _versions() -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    for name in ("triton", "cupy-cuda13x", "numpy"):
        try:
            versions[name.partition("-")[0]] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    nvcc = shutil.which("nvcc") or (
        "/usr/local/cuda/bin/nvcc" if os.path.exists("/usr/local/cuda/bin/nvcc") else ""
    )
    try:
        versions["cutlass"] = str(importlib.import_module("cuda_impl._cutlass").version)
    except ImportError:
        pass  # built without its headers, or not at all
    release = re.search(r"release (\S+),", _output(nvcc, "--version")) if nvcc else None
    if release:
        versions["nvcc"] = release[1]
    return versions


# ---------------------------------------------------------------------------- clocks


@functools.cache
def _nvml_handle() -> tuple[Any, Any] | None:
    """(pynvml, handle of the current device), or None where NVML can't be asked."""
    if not torch.cuda.is_available():
        return None
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid if "-" not in uuid else f"GPU-{uuid}")
    except Exception as error:  # NVML's own errors derive from Exception alone
        print(f"clocks are not recorded: NVML can't be asked ({error})", file=sys.stderr)
        return None


def _driver_version() -> str:
    handle = _nvml_handle()
    return str(handle[0].nvmlSystemGetDriverVersion()) if handle else ""


class Clocks:
    """The card's state while a row is measured: what `sample` saw, as smallest and largest."""

    def __init__(self) -> None:
        self._sm_mhz: list[int] = []
        self._watts: list[float] = []
        self._celsius: list[int] = []
        self._throttles: set[str] = set()

    def sample(self) -> None:
        """Ask once; about 0.1 ms of host time, so between samples and never inside one."""
        found = _nvml_handle()
        if found is None:
            return
        nvml, handle = found
        self._sm_mhz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        self._watts.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        self._celsius.append(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        self._throttles |= {name for bit, name in _THROTTLES.items() if reasons & bit}

    def record(self) -> dict[str, Any]:
        if not self._sm_mhz:
            return {}
        return {
            "sm_mhz": [min(self._sm_mhz), max(self._sm_mhz)],
            "power_w": [round(min(self._watts)), round(max(self._watts))],
            "temperature_c": [min(self._celsius), max(self._celsius)],
            "throttle": sorted(self._throttles),
        }
