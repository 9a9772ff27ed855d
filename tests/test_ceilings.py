"""What measures the ceilings does the work it is timed for."""

from __future__ import annotations

import numpy as np
import pytest
import torch


def test_the_reading_kernel_reads_every_word(device: torch.device) -> None:
    read_rate = pytest.importorskip("benchmarks.read_rate", reason="needs triton")
    words = torch.randint(-(2**31), 2**31, (5 * read_rate.TILE,), dtype=torch.int32, device=device)
    tiles = words.view(5, -1).cpu().numpy()
    before = words.clone()
    np.testing.assert_array_equal(
        read_rate.launch(words).cpu().numpy(), np.bitwise_xor.reduce(tiles, axis=1)
    )
    assert torch.equal(words, before)
