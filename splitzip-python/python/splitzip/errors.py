"""The exceptions of the package.

Every one is a :class:`Error`, and also the exception of Python that is closest to it. A message says what was wrong, what is allowed and
what to do.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BufferSizeError",
    "ChecksumError",
    "CodebookError",
    "CorruptError",
    "CudaError",
    "CudaUnavailableError",
    "DtypeError",
    "Error",
    "FrameError",
    "LimitError",
    "NotAFrameError",
    "OutOfMemoryError",
    "PagedError",
    "TruncatedError",
    "UnsupportedError",
    "VersionError",
]


class Error(Exception):
    """Everything that SplitZip raises."""


class ArgumentError(Error, ValueError):
    """An argument that cannot be: an unknown name, a scheme that gains nothing, memory that overlaps or is read-only."""


class DtypeError(Error, TypeError):
    """Elements that cannot be coded, that do not say what they are, or that are not what ``dtype`` says."""


class BufferSizeError(ArgumentError):
    """Memory of the wrong size."""


class CodebookError(Error, ValueError):
    """A codebook that is none, is for another dtype, or is missing."""


class PagedError(Error, ValueError):
    """Pages, layouts, or pairs of them that do not fit together."""


class UnsupportedError(Error, NotImplementedError):
    """Something that exists, but not here: on this device, or in this combination."""


class FrameError(Error, ValueError):
    """A frame that cannot be read."""


class NotAFrameError(FrameError):
    """Bytes that are no frame at all."""


class VersionError(FrameError):
    """A frame of a version that this package does not know."""


class TruncatedError(FrameError):
    """A frame that ends before it should."""


class LimitError(FrameError):
    """A frame that describes more bytes than ``max_bytes`` allows."""


class CorruptError(FrameError):
    """A frame that is damaged."""


class ChecksumError(CorruptError):
    """Decoded bits that are not those that were encoded."""


class CudaError(Error, RuntimeError):
    """Something that a CUDA device or its driver refused."""


class CudaUnavailableError(CudaError):
    """No driver, no such device, or one that is too old."""


class OutOfMemoryError(Error, MemoryError):
    """Less memory than is needed, on the host or on a device."""
