"""Finds CUDA's compiler, headers and runtime library, from a system toolkit or from pip's packages,
and CUTLASS.

Only setup.py and rawmodule.py ask. Importing this looks at nothing; each function looks when it
is called, and says in one sentence what is missing and which command mends it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "NO_CUTLASS",
    "ToolkitError",
    "find_cutlass",
    "find_ninja",
    "find_toolkit",
    "header_folders",
    "require_host",
    "runtime_library",
]

# Where NVIDIA's installer puts it.
SYSTEM_NVCC = Path("/usr/local/cuda/bin/nvcc")

# nvcc from PyPI is split: the driver, its internal headers, the optimiser, and the C++ headers
# that cuda_fp16.h includes.
PIP_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl")

# PyPI's newest, which compiles with CUDA 13. What it depends on is for its Python half alone.
NO_CUTLASS = (
    "CUTLASS's headers are not there: pip install --no-deps nvidia-cutlass==4.2.0.0, "
    "or set CUTLASS_HOME to the folder above their `include`"
)


class ToolkitError(RuntimeError):
    """Something that a build or a compilation at run time needs is not on this machine."""


def find_toolkit(torch_cuda: str | None) -> Path:
    """The root of a toolkit (the folder above bin/nvcc) of torch's CUDA major version.

    torch_cuda: torch.version.cuda. CUDA_HOME decides if set; else the first that fits of nvcc on
    PATH, /usr/local/cuda and the nvidia packages of site-packages.
    """
    if torch_cuda is None:
        raise ToolkitError(
            "this torch is built without CUDA, so no extension can be built for it: "
            "pip install --force-reinstall torch (its CUDA build)"
        )
    others = []
    for root in _toolkits():
        release = _release(root)
        if release.split(".")[0] == torch_cuda.split(".")[0]:
            return root
        others.append(f"nvcc {release} in {root}")
    wanted = ".".join(torch_cuda.split(".")[:2])
    install = "pip install " + " ".join(f"'{name}=={wanted}.*'" for name in PIP_PACKAGES)
    if others:
        raise ToolkitError(
            f"torch is built with CUDA {torch_cuda}, but there is only {', '.join(others)}: "
            f"set CUDA_HOME to a toolkit of the same major version, or {install}"
        )
    raise ToolkitError(f"nvcc, CUDA's compiler, is not installed: {install}")


def find_ninja() -> Path:
    """The folder that holds ninja: on PATH, or beside this Python where a venv is not active."""
    found = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    if found is None:
        raise ToolkitError("ninja, which runs the compilers, is not installed: pip install ninja")
    return Path(found).parent


def find_cutlass() -> Path | None:
    """The folder of <cutlass/cutlass.h> and <cute/tensor.hpp>; None where CUTLASS is not there.

    CUTLASS_HOME, the folder above `include`, decides if set; else pip's nvidia-cutlass, which keeps
    its headers in a Python package.
    """
    home = os.environ.get("CUTLASS_HOME")
    if home:
        include = Path(home) / "include"
        if not (include / "cutlass" / "cutlass.h").is_file():
            raise ToolkitError(
                f"CUTLASS_HOME is {home}, where there is no include/cutlass/cutlass.h: "
                "unset or mend it"
            )
        return include.resolve()
    spec = importlib.util.find_spec("cutlass_library")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    folders = [Path(place) / "source" / "include" for place in places]
    return next((f for f in folders if (f / "cutlass" / "cutlass.h").is_file()), None)


def require_host() -> None:
    """The C++ compiler that nvcc calls, and Python's headers, a package of their own in Debian."""
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        raise ToolkitError(f"{compiler}, the host compiler, is not installed: apt-get install g++")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise ToolkitError(
            f"Python.h, a header of Python's, is not in {headers}: apt-get install python3-dev"
        )


def header_folders(toolkit: Path | None) -> list[Path]:
    """Where <cuda_fp16.h>, <cuda_runtime.h> and, for torch's own headers, cuBLAS's and others are.

    toolkit: looked at first; None for the nvidia packages of site-packages alone
    """
    roots = dict.fromkeys([*([toolkit] if toolkit else []), *_pip_roots()])
    folders = [root / "include" for root in roots if (root / "include").is_dir()]
    if not any((folder / "cuda_fp16.h").is_file() for folder in folders):
        raise ToolkitError(
            "cuda_fp16.h, a header of CUDA's runtime, is not installed: "
            "pip install nvidia-cuda-runtime nvidia-cuda-cccl"
        )
    # CUDA 13 keeps the C++ headers that cuda_fp16.h includes in a folder of their own.
    return [*folders, *(folder / "cccl" for folder in folders if (folder / "cccl").is_dir())]


def runtime_library(toolkit: Path, build: Path) -> Path:
    """The folder of libcudart.so, which the linker asks for.

    build: gets a link of that name where there is none, as in pip's libcudart.so.13
    """
    folders = [root / name for root in (toolkit, *_pip_roots()) for name in ("lib64", "lib")]
    for folder in folders:
        if (folder / "libcudart.so").exists():
            return folder
    for folder in folders:
        for versioned in sorted(folder.glob("libcudart.so.*")):
            build.mkdir(parents=True, exist_ok=True)
            link = build / "libcudart.so"
            link.unlink(missing_ok=True)
            link.symlink_to(versioned)
            return build
    raise ToolkitError(
        "libcudart.so, CUDA's runtime, is not installed: pip install nvidia-cuda-runtime"
    )


def _toolkits() -> Iterator[Path]:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        if not (Path(home) / "bin" / "nvcc").is_file():
            raise ToolkitError(f"CUDA_HOME is {home}, where there is no bin/nvcc: unset or mend it")
        yield Path(home)
        return
    on_path = shutil.which("nvcc")
    places = [Path(on_path)] if on_path else []
    places += [SYSTEM_NVCC, *(root / "bin" / "nvcc" for root in _pip_roots())]
    yield from (_root_of(nvcc) for nvcc in places if nvcc.is_file())


def _root_of(nvcc: Path) -> Path:
    # nvcc on PATH may be a link or a script elsewhere; a dry run says where it belongs.
    told = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True)
    top = re.search(r"TOP=(.*)", told.stderr)
    return Path(top.group(1)).resolve() if top else nvcc.resolve().parent.parent


def _release(root: Path) -> str:
    told = subprocess.run([root / "bin" / "nvcc", "--version"], capture_output=True, text=True)
    release = re.search(r"release (\d+\.\d+)", told.stdout)
    return release.group(1) if release else "of unknown release"


def _pip_roots() -> list[Path]:
    """nvidia/cu13 and its like in site-packages, newest first; several where paths are many."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    return sorted((root for place in places for root in Path(place).glob("cu[0-9]*")), reverse=True)
