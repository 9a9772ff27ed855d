"""Builds cuda_impl._C from csrc/: python setup.py build_ext --inplace

The extension exists for that command alone: `pip install .` installs the Python files and needs no
compiler. Ninja keeps the objects, so that touching one source rebuilds one object.
"""

import os
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# pip builds with another folder first on the path.
sys.path.insert(0, str(ROOT))


def extension() -> dict[str, object]:
    import torch

    from cuda_impl import flags, toolkit

    try:
        home = toolkit.find_toolkit(torch.version.cuda)
        headers = toolkit.header_folders(home)
        library = toolkit.runtime_library(home, ROOT / "build" / "lib")
        ninja = toolkit.find_ninja()
        toolkit.require_host()
    except toolkit.ToolkitError as error:
        print(f"cuda_impl._C can't be built: {error}", file=sys.stderr)
        # Tells the Makefile a machine that lacks something from a source that doesn't compile.
        raise SystemExit(os.EX_UNAVAILABLE) from None

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(flags.architectures(os.environ, capability))
    # torch reads both when its module is imported.
    os.environ["CUDA_HOME"] = str(home)
    os.environ["PATH"] = os.pathsep.join((str(ninja), os.environ["PATH"]))
    from torch.utils.cpp_extension import BuildExtension, CUDAExtension

    csrc = ROOT / "csrc"
    sources = sorted(
        path.relative_to(ROOT) for kind in ("cu", "cpp") for path in csrc.glob(f"*.{kind}")
    )
    module = CUDAExtension(
        "cuda_impl._C",
        sources=[str(path) for path in sources],
        # setuptools asks ninja only when one of these is newer than the library.
        depends=[str(path) for kind in ("h", "cuh") for path in csrc.rglob(f"*.{kind}")],
        include_dirs=[str(folder) for folder in headers],
        library_dirs=[str(library)],
        extra_compile_args={"cxx": ["-O2"], "nvcc": list(flags.NVCC)},
    )
    return {"ext_modules": [module], "cmdclass": {"build_ext": BuildExtension}}


setup(**(extension() if "build_ext" in sys.argv else {}))
