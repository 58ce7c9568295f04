"""What the tests share: tensors of every dtype, and the committed fixture."""

from __future__ import annotations

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIXTURE = REPOSITORY / "tests/fixtures/smollm2_prose_160.safetensors"

NUMPY = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
SCHEMES = ["w4", "w3", "w2x3", "w2x2x3"]
#: Every pair that can gain something: codes of 4 bits are as long as the exponents of e4m3.
MEMBERS = [(dtype, scheme) for dtype in NUMPY for scheme in SCHEMES if (dtype, scheme) != ("e4m3", "w4")]


def words_of(array: np.ndarray) -> np.ndarray:
    """The bits of an array."""
    return array.view(f"uint{8 * array.itemsize}")


def assert_same(decoded: np.ndarray, array: np.ndarray) -> None:
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    assert np.array_equal(words_of(np.ascontiguousarray(decoded)), words_of(np.ascontiguousarray(array)))


def normal(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Something that looks like KV."""
    numbers = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return numbers.astype(NUMPY[dtype])


@pytest.fixture(scope="session")
def fixture() -> dict[str, np.ndarray]:
    """The tensors of the committed fixture: keys and values of a model, bf16."""
    data = FIXTURE.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        start, end = entry["data_offsets"]
        words = np.frombuffer(data[8 + size + start : 8 + size + end], np.uint16)
        tensors[name] = words.view(NUMPY["bf16"]).reshape(entry["shape"])
    return tensors
