"""What the tests with real serving engines share. They have a command and an environment of their own: ``cargo xtask integrations``."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import torch

os.environ["LMCACHE_TRACK_USAGE"] = "false"

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIXTURE = REPOSITORY / "tests/fixtures/smollm2_prose_160.safetensors"


@pytest.fixture(scope="session")
def kv() -> torch.Tensor:
    """Real keys and values: ``[2, layers, heads, tokens, head_dim]``, bf16."""
    data = FIXTURE.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    layers = sum(name.endswith(".k") for name in header)
    parts = []
    for part in "kv":
        for layer in range(layers):
            entry = header[f"layers.{layer}.{part}"]
            start, end = entry["data_offsets"]
            words = torch.frombuffer(bytearray(data[8 + size + start : 8 + size + end]), dtype=torch.bfloat16)
            parts.append(words.reshape(entry["shape"]))
    return torch.stack(parts).reshape(2, layers, *parts[0].shape)


def octets(*tensors: torch.Tensor) -> bytes:
    """The bytes of tensors, one behind the other."""
    return b"".join(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors)
