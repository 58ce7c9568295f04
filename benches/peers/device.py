"""A GPU through the CUDA driver: memory, one stream, events. The primary context, since nvCOMP's runtime uses that one."""

import statistics
from collections.abc import Callable

import numpy as np
from cuda.bindings import driver

from rows import spread


class CudaError(Exception):
    """A call of the driver that failed; the message names the call and the driver's word for what went wrong."""


def call(function: Callable, *arguments):
    error, *values = function(*arguments)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(f"{function.__name__}: {error.name}")
    return values[0] if len(values) == 1 else values


class Buffer:
    """Bytes on the device, freed with the object. Other libraries read them through `__cuda_array_interface__`."""

    def __init__(self, size: int, value_type: str = "|u1"):
        self.size = size
        self.value_type = value_type
        self.address = int(call(driver.cuMemAlloc, size))

    def __del__(self):
        if address := getattr(self, "address", None):
            driver.cuMemFree(address)

    def view(self, value_type: str, at: int = 0, size: int | None = None) -> "View":
        return View(self, value_type, at, self.size if size is None else size)

    # These three run on the default stream, which our stream does not wait for: so they wait for the whole device.

    def upload(self, raw: np.ndarray) -> None:
        call(driver.cuMemcpyHtoD, self.address, raw.ctypes.data, raw.nbytes)
        call(driver.cuCtxSynchronize)

    def download(self) -> np.ndarray:
        call(driver.cuCtxSynchronize)
        raw = np.empty(self.size, np.uint8)
        call(driver.cuMemcpyDtoH, raw.ctypes.data, self.address, self.size)
        return raw

    def fill(self, byte: int) -> None:
        call(driver.cuCtxSynchronize)
        call(driver.cuMemsetD8, self.address, byte, self.size)
        call(driver.cuCtxSynchronize)


class View:
    """A part of a buffer, as values of a type; keeps the buffer alive."""

    def __init__(self, buffer: Buffer, value_type: str, at: int, size: int):
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (size // int(value_type[2:]),),
            "typestr": value_type,
            "data": (buffer.address + at, False),
            "strides": None,
            "version": 3,
        }


class Device:
    SINGLE_CALLS = 20
    QUEUES = 5
    QUEUED_CALLS = 10

    def __init__(self, ordinal: int):
        call(driver.cuInit, 0)
        self.ordinal = ordinal
        handle = call(driver.cuDeviceGet, ordinal)
        call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, handle))
        self.name = call(driver.cuDeviceGetName, 128, handle).split(b"\0")[0].decode()
        self.cuda = call(driver.cuDriverGetVersion)
        self.stream = call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
        self.start, self.end = (call(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DEFAULT.value) for _ in range(2))

    def synchronize(self) -> None:
        call(driver.cuStreamSynchronize, self.stream)

    def copy(self, to: Buffer, source: Buffer) -> None:
        call(driver.cuMemcpyDtoDAsync, to.address, source.address, source.size, self.stream)

    def between_events(self, run: Callable[[], object], times: int) -> float:
        """Seconds of a call, of `times` that follow each other."""
        call(driver.cuEventRecord, self.start, self.stream)
        for _ in range(times):
            run()
        call(driver.cuEventRecord, self.end, self.stream)
        call(driver.cuEventSynchronize, self.end)
        return call(driver.cuEventElapsedTime, self.start, self.end) / 1e3 / times

    def time(self, run: Callable[[], object]) -> tuple[float, float]:
        """Seconds of a call and their spread: the better one of two medians. Calls one by one show what the host adds; ten calls
        queued behind each other hide it, unless the call itself waits for the device. A peer gets whichever is the faster."""
        for _ in range(3):
            run()
        self.synchronize()
        single = [self.between_events(run, 1) for _ in range(self.SINGLE_CALLS)]
        queued = [self.between_events(run, self.QUEUED_CALLS) for _ in range(self.QUEUES)]
        times = min(single, queued, key=statistics.median)
        return statistics.median(times), spread(times)
