"""DLPack: capsules are taken once, freed once, and read-only memory stays so."""

from __future__ import annotations

import ctypes
import gc
import sys

import numpy as np
import pytest
import splitzip
from conftest import assert_same, normal, words_of


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Raw(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Plain(ctypes.Structure):
    _fields_ = [("tensor", Raw), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Raw),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
is_valid = ctypes.pythonapi.PyCapsule_IsValid
is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Producer:
    """An object whose capsules are made by hand, and counted."""

    def __init__(self, words: np.ndarray, code: int = 4, bits: int = 16, **options: object) -> None:
        self.words = np.ascontiguousarray(words)
        self.code, self.bits, self.options = code, bits, options
        self.freed = 0
        self.capsules: list[object] = []
        self.kept: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.options.get("kind", 1), 0)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: object) -> object:
        if self.options.get("old") and max_version is not None:
            raise TypeError("unexpected keyword argument 'max_version'")
        versioned = max_version is not None
        managed = Versioned() if versioned else Plain()
        shape = (ctypes.c_int64 * 1)(self.words.size)
        offset = self.options.get("offset", 0)
        managed.tensor.data = self.words.ctypes.data - offset
        managed.tensor.offset = offset
        managed.tensor.device = Device(self.options.get("kind", 1), 0)
        managed.tensor.ndim = 1
        managed.tensor.dtype = Dtype(self.code, self.bits, self.options.get("lanes", 1))
        managed.tensor.shape = shape
        managed.deleter = DELETER(self._free)
        if versioned:
            managed.major, managed.minor = self.options.get("version", (1, 0))
            managed.flags = self.options.get("flags", 0)
        self.kept += [managed, shape]
        name = b"dltensor_versioned" if versioned else b"dltensor"
        capsule = new_capsule(ctypes.addressof(managed), name, None)
        self.capsules.append(capsule)
        return capsule

    def _free(self, _: int) -> None:
        self.freed += 1


@pytest.mark.parametrize("old", [False, True])
def test_the_deleter_is_called_once(old: bool) -> None:
    words = words_of(normal("bf16", 3000))
    producer = Producer(words, old=old)
    frame = splitzip.compress(producer)
    assert producer.freed == 1
    used = b"used_dltensor" if old else b"used_dltensor_versioned"
    assert is_valid(producer.capsules[0], used)
    assert bytes(frame) == bytes(splitzip.compress(words, dtype="bf16"))
    producer.capsules.clear()
    gc.collect()
    assert producer.freed == 1


def test_it_is_called_when_the_call_fails() -> None:
    words = words_of(normal("bf16", 100))
    for options, error, message in [
        ({"code": 17, "bits": 8}, splitzip.DtypeError, "DLPack type code 17 with 8 bits is unknown"),
        ({"code": 99, "bits": 16}, splitzip.DtypeError, "type code 99 with 16 bits is unknown"),
        ({"code": 11, "bits": 8}, splitzip.DtypeError, "float8_e4m3fnuz"),
        ({"code": 17, "bits": 4}, splitzip.DtypeError, "elements of 4 bits"),
        ({"code": 4, "bits": 16, "lanes": 2}, splitzip.DtypeError, "vectors of 2 lanes"),
        ({"code": 2, "bits": 32}, splitzip.DtypeError, "float32 cannot be coded"),
        ({"code": 4, "bits": 16, "version": (2, 0)}, splitzip.UnsupportedError, "comes as DLPack 2.0"),
        ({"code": 4, "bits": 16, "scheme": "zip"}, splitzip.ArgumentError, "there is no scheme"),
    ]:
        scheme = options.pop("scheme", "w3")
        producer = Producer(words, **options)
        with pytest.raises(error, match=message):
            splitzip.compress(producer, scheme=scheme)
        gc.collect()
        assert producer.freed == 1, options


def test_other_devices_are_refused() -> None:
    producer = Producer(words_of(normal("bf16", 100)), kind=8)
    with pytest.raises(splitzip.UnsupportedError, match="a device of DLPack type 8"):
        splitzip.compress(producer)
    assert not producer.capsules


def test_codes_and_offsets() -> None:
    for dtype, code in {"bf16": 4, "fp16": 2, "e4m3": 10, "e5m2": 12}.items():
        tensor = normal(dtype, 2000)
        producer = Producer(words_of(tensor), code, 8 * tensor.itemsize, offset=64)
        frame = splitzip.compress(producer)
        assert frame.dtypes == [dtype]
        assert_same(splitzip.decompress(frame, framework="numpy"), tensor)
    tensor = normal("bf16", 2000)
    assert bytes(splitzip.compress(Producer(words_of(tensor), 1, 16), dtype="bf16")) == bytes(splitzip.compress(tensor))


def test_read_only_memory_is_no_output() -> None:
    tensor = normal("bf16", 500)
    frame = splitzip.compress(tensor)
    producer = Producer(np.zeros(500, np.uint16), flags=1)
    with pytest.raises(splitzip.ArgumentError, match="read-only"):
        splitzip.decompress(frame, out=producer)
    assert producer.freed == 1
    writable = Producer(np.zeros(500, np.uint16))
    assert splitzip.decompress(frame, out=writable) is writable
    assert np.array_equal(writable.words, words_of(tensor))


def test_decoded_tensors_are_exported() -> None:
    tensor = normal("fp16", 7, 9)
    decoded = splitzip.decompress(bytes(splitzip.compress(tensor)))
    array = np.from_dlpack(decoded)
    assert_same(array, tensor)
    array[0, 0] = 1.5
    assert decoded.numpy()[0, 0] == 1.5

    def references() -> int:
        return sys.getrefcount(decoded._view)

    for version in (None, (1, 0)):
        before = references()
        capsule = decoded.__dlpack__(max_version=version)
        assert is_valid(capsule, b"dltensor" if version is None else b"dltensor_versioned")
        assert references() == before + 1
        del capsule
        assert references() == before
    bf16 = splitzip.decompress(bytes(splitzip.compress(normal("bf16", 7, 9))))
    managed = Plain.from_address(pointer_of(capsule := bf16.__dlpack__(), b"dltensor"))
    assert (managed.tensor.dtype.code, managed.tensor.dtype.bits, managed.tensor.ndim) == (4, 16, 2)
    assert [managed.tensor.shape[0], managed.tensor.shape[1]] == [7, 9]
    assert [managed.tensor.strides[0], managed.tensor.strides[1]] == [9, 1]
    del capsule
    with pytest.raises(BufferError, match="does not copy"):
        decoded.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="is not copied to"):
        decoded.__dlpack__(dl_device=(2, 0))


def test_frames_are_exported_read_only() -> None:
    frame = splitzip.compress(normal("bf16", 500))
    with pytest.raises(BufferError, match="read-only"):
        frame.__dlpack__()
    array = np.from_dlpack(frame)
    assert not array.flags.writeable and array.tobytes() == bytes(frame)
    data = bytes(frame)
    del frame
    gc.collect()
    assert array.tobytes() == data


