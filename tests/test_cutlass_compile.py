"""What the compiler made of CUTLASS's templates, read off the built module: no spills, and products
that don't wait for one another."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from test_cuda_compile import assert_nothing_spilled, dump, instructions

from benchmarks import device

UNMET = device._unmet("cutlass", "cuda")
pytestmark = pytest.mark.skipif(bool(UNMET), reason=UNMET or "nothing is missing")

# Two dtypes, b either way round.
INSTANCES = 4
# Tiles of 128 x 256 with 64 steps of k.
STEPS = 64 // 16


@pytest.fixture(scope="module")
def library() -> bytes:
    spec = importlib.util.find_spec("cuda_impl._cutlass")
    assert spec
    assert spec.origin
    return Path(spec.origin).read_bytes()


def test_nothing_is_spilled(library: bytes, tmp_path: Path) -> None:
    usage = dump(library, tmp_path, "--dump-resource-usage")
    assert_nothing_spilled(usage, INSTANCES)
    # Before setmaxnreg shares them out anew, an even share of 65536 for three warpgroups.
    assert set(re.findall(r"REG:(\d+)", usage)) == {"168"}


def test_it_is_compiled_for_hopper_alone(library: bytes, tmp_path: Path) -> None:
    assert set(re.findall(r"arch = (\w+)", dump(library, tmp_path, "-sass"))) == {"sm_90a"}


def test_the_products_of_a_stage_go_one_after_another(library: bytes, tmp_path: Path) -> None:
    """With CUTLASS's assertions compiled in, each waits for the last: see flags.NVCC_CUTLASS."""
    found = instructions(dump(library, tmp_path, "-sass"))
    # In each instance those of its first stage, and those of the loop over the others.
    assert found["HGMMA.64x256x16.F32"] == found["HGMMA.64x256x16.F32.BF16"] == INSTANCES * STEPS
    for name in ("WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE"):
        assert found[name] == 2 * INSTANCES
    assert not [name for name in found if name.startswith(("CALL", "BPT", "LDL", "STL"))]


def test_tiles_come_and_go_by_the_tensor_memory_accelerator(library: bytes, tmp_path: Path) -> None:
    found = instructions(dump(library, tmp_path, "-sass"))
    # What the two blocks of a cluster share of b is sent to both; a isn't shared.
    assert found["UTMALDG.3D"] == INSTANCES
    assert found["UTMALDG.3D.MULTICAST"] >= INSTANCES
    assert found["UTMASTG.3D"]
    assert not [name for name in found if name.startswith("STG")]
