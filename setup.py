"""Builds cuda_impl._C from csrc/: python setup.py build_ext --inplace

And cuda_impl._cutlass where CUTLASS's headers are, from the files that are named for it. The
modules exist for that command alone: `pip install .` installs the Python files and needs no
compiler. Ninja keeps the objects, so that touching one source rebuilds one object.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
# pip builds with another folder first on the path.
sys.path.insert(0, str(ROOT))


def extension() -> dict[str, object]:
    import torch

    from cuda_impl import flags, toolkit

    try:
        home = toolkit.find_toolkit(torch.version.cuda)
        headers = toolkit.header_folders(home)
        cutlass = toolkit.find_cutlass()
        library = toolkit.runtime_library(home, ROOT / "build" / "lib")
        ninja = toolkit.find_ninja()
        toolkit.require_host()
    except toolkit.ToolkitError as error:
        print(f"cuda_impl._C can't be built: {error}", file=sys.stderr)
        # Tells the Makefile a machine that lacks something from a source that doesn't compile.
        raise SystemExit(os.EX_UNAVAILABLE) from None

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    architectures = flags.architectures(os.environ, capability)
    os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(architectures)
    # torch reads both when its module is imported.
    os.environ["CUDA_HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join((str(ninja), os.environ["PATH"]))
    from torch.utils.cpp_extension import BuildExtension, CUDAExtension

    def module(name: str, sources: set[Path], nvcc: tuple[str, ...], *more: Path) -> Extension:
        return CUDAExtension(
            f"cuda_impl.{name}",
            sources=sorted(str(path.relative_to(ROOT)) for path in sources),
            # setuptools asks ninja only when one of these is newer than the library.
            depends=[str(path) for kind in ("h", "cuh") for path in csrc.rglob(f"*.{kind}")],
            include_dirs=[str(folder) for folder in (*headers, *more)],
            library_dirs=[str(library)],
            extra_compile_args={"cxx": ["-O2"], "nvcc": list(nvcc)},
        )

    csrc = ROOT / "csrc"
    sources = {path for kind in ("cu", "cpp") for path in csrc.glob(f"*.{kind}")}
    of_cutlass = {path for path in sources if "cutlass" in path.stem}
    modules = [module("_C", sources - of_cutlass, flags.NVCC)]
    if not of_cutlass or "9.0a" not in architectures:
        print("cuda_impl._cutlass is left out: it would run on Hopper alone")
    elif cutlass is None:
        print(f"cuda_impl._cutlass is left out: {toolkit.NO_CUTLASS}")
    else:
        modules.append(module("_cutlass", of_cutlass, flags.NVCC_CUTLASS, cutlass))
    return {"ext_modules": modules, "cmdclass": {"build_ext": BuildExtension}}


setup(**(extension() if "build_ext" in sys.argv else {}))
