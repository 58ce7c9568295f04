"""The tensors that every codec gets: the float tensors of a safetensors file, behind each other, tiled to a size.

Tiling makes any size out of a small real file. It is long enough (45 MiB) that no codec's window sees the copy before.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MIB = 1 << 20
# The name in safetensors: our name, and how many bytes a value has.
DTYPES = {"BF16": ("bf16", 2), "F16": ("fp16", 2), "F8_E4M3": ("e4m3", 1), "F8_E5M2": ("e5m2", 1)}


class BadInput(Exception):
    """A file or an argument that cannot be measured; the message says what is allowed."""


@dataclass(frozen=True)
class Tensors:
    path: Path
    dtype: str
    value_bytes: int
    payload: np.ndarray

    @property
    def name(self) -> str:
        return self.path.stem

    def tiled(self, size: int) -> np.ndarray:
        """`size` bytes, the payload again and again."""
        return np.tile(self.payload, math.ceil(size / self.payload.size))[:size].copy()


def load(path: Path) -> Tensors:
    file = path.read_bytes()
    try:
        length = int.from_bytes(file[:8], "little")
        header = json.loads(file[8 : 8 + length])
    except ValueError as error:
        raise BadInput(f"{path}: not a safetensors file ({error}); give one with {' or '.join(DTYPES)} tensors") from error
    floats = [entry for name, entry in header.items() if name != "__metadata__" and entry["dtype"] in DTYPES]
    kinds = sorted({entry["dtype"] for entry in floats})
    if len(kinds) != 1:
        raise BadInput(f"{path}: its tensors are {kinds or 'no floats of 16 or 8 bits'}; give a file with one of {', '.join(DTYPES)}")
    floats.sort(key=lambda entry: entry["data_offsets"][0])
    data = np.frombuffer(file, np.uint8, offset=8 + length)
    parts = [data[slice(*entry["data_offsets"])] for entry in floats]
    return Tensors(path, *DTYPES[kinds[0]], np.concatenate(parts))
