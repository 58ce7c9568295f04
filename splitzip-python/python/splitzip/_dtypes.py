"""Names of dtypes: those of frames, and those that frameworks have for them."""

from __future__ import annotations

from typing import Any

from .errors import DtypeError

# What a frame calls it, and bytes of an element.
SIZES = {"bf16": 2, "fp16": 2, "e4m3": 1, "e5m2": 1, "bytes": 1}

# What NumPy (with ml_dtypes) and PyTorch call it.
FRAMEWORK_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "bytes": "uint8",
}

_ALIASES = {name: dtype for dtype, name in FRAMEWORK_NAMES.items() if dtype != "bytes"} | {"half": "fp16"}


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype in a frame.

    Parameters
    ----------
    dtype
        A name (``"bf16"``, ``"bfloat16"``, ``"torch.bfloat16"``), a dtype of PyTorch or NumPy, a scalar type of ml_dtypes, or ``None``.
    """
    if dtype is None:
        return None
    if isinstance(dtype, str):
        given = dtype
    else:
        given = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = given.removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in SIZES:
        raise DtypeError(f"there is no dtype {given!r}; it must be one of {', '.join(SIZES)}, or a dtype of PyTorch or NumPy for one of them")
    return name
