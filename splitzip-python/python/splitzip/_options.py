"""What callers say once for all tensors, or for each."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._splitzip import Codebook
from .errors import ArgumentError

Scheme = Literal["auto", "stored", "w4", "w3", "w2x3", "w2x2x3"]
Bases = Literal["auto", "chunk", "channel"]
Checksums = Literal["none", "tensor", "chunk", "both"]
Framework = Literal["numpy", "torch", "splitzip"]

#: A list or tuple of tensors, or tensors by name.
Tensors = Sequence[Any] | Mapping[str, Any]


def named(tensors: Tensors, names: Sequence[str] | None) -> tuple[list[str], list[Any]]:
    """Names and tensors, in order."""
    if isinstance(tensors, Mapping):
        if names is not None:
            raise ArgumentError("the tensors have names already; leave names= out")
        return list(tensors.keys()), list(tensors.values())
    if not isinstance(tensors, (list, tuple)):
        raise ArgumentError(f"{type(tensors).__name__} is no batch; give a list, a tuple, or a dict of names")
    listed = list(tensors)
    if names is None:
        return [""] * len(listed), listed
    if len(names) != len(listed):
        raise ArgumentError(f"{len(names)} names for {len(listed)} tensors; give one for each, in their order")
    return list(names), listed


def each(what: str, value: Any, names: Sequence[str]) -> list[Any]:
    """One value for each tensor: the same, those of a list, or those of a dict by name (``None`` where it has none)."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in names]
        if unknown:
            raise ArgumentError(f"{what} has {unknown[0]!r}, but no tensor has this name")
        return [value.get(name) for name in names]
    if isinstance(value, (list, tuple)):
        if len(value) != len(names):
            raise ArgumentError(f"{len(value)} values of {what} for {len(names)} tensors; give one for each, in their order")
        return list(value)
    return [value] * len(names)


def codebooks_of(value: Any, names: Sequence[str]) -> list[Codebook | None]:
    books = each("codebook", value, names)
    for book in books:
        if book is not None and not isinstance(book, Codebook):
            raise ArgumentError(f"{type(book).__name__} is no codebook; use what calibrate returns, or None for one of a sample")
    return books


def check_threads(threads: Any) -> None:
    """Refuses what is no number of threads."""
    if threads is None:
        return
    if isinstance(threads, bool) or not hasattr(threads, "__index__"):
        raise ArgumentError(f"threads must be a number of at least 1, or None for one a core, and is {threads!r:.100}")
    if operator.index(threads) < 1:
        raise ArgumentError(f"{threads} threads do nothing; give at least 1, or None for one a core")


def check_tokens(tokens: Any) -> None:
    """Refuses what is no range of tokens. Whether a frame has them is not looked at."""
    if tokens is None:
        return
    pair = isinstance(tokens, tuple) and len(tokens) == 2 and all(hasattr(place, "__index__") and not isinstance(place, bool) for place in tokens)
    if not pair or min(map(operator.index, tokens)) < 0:
        raise ArgumentError(f"tokens must be a tuple (start, stop) of numbers from 0 on, or None for all tokens, and is {tokens!r:.100}")


def pick(given: dict[str, Any], defaults: Mapping[str, Any], others: Sequence[str], what: str) -> dict[str, Any]:
    """The options of a configuration: those that were given, with defaults; unknown ones are refused."""
    known = [*defaults, *others]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ArgumentError(f"{what} has no option {unknown[0]!r}; there are {', '.join(known)}")
    return {**defaults, **given}
