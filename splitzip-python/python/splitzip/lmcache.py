"""LMCache: a serde that compresses its objects without losing a bit, and an adapter that keeps them in a folder.

Importing this module registers the serde ``"splitzip"``. With the adapter of this module as a plugin that happens in ``lmcache server``:

.. code-block:: sh

   lmcache server --l1-size-gb 20 --eviction-policy LRU --l2-adapter '{"type": "plugin", "module_path": "splitzip.lmcache", "class_name": "FolderL2Adapter",
     "adapter_params": {"folder": "/var/cache/kv"}, "serde": {"type": "splitzip"}}'

Needs ``pip install splitzip[lmcache]`` (LMCache 0.5.6 or newer).
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

try:
    from lmcache.lmcache_native import Bitmap
    from lmcache.v1.distributed.api import KeyEntry, KeyListPage, MemoryLayoutDesc, ObjectKey
    from lmcache.v1.distributed.internal_api import L2AdapterListener, L2StoreResult
    from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
    from lmcache.v1.distributed.serde import (
        AsyncSerdeProcessor,
        Deserializer,
        SerdeProcessor,
        Serializer,
        get_registered_serde_types,
        register_serde_factory,
    )
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.platform import create_event_notifier
except ImportError as error:
    raise ImportError(f"splitzip.lmcache needs LMCache 0.5.6 or newer ({error}): pip install 'splitzip[lmcache]'", name=error.name) from error

from ._folder import FolderStore
from ._notices import Notices
from ._objects import TORCH_DTYPES, ObjectCoder, Region
from ._options import pick
from .errors import ArgumentError, Error, FrameError

__all__ = ["FolderL2Adapter", "SplitZipDeserializer", "SplitZipSerializer", "register"]

logger = logging.getLogger(__name__)

#: The name that configurations use.
SERDE = "splitzip"


def key_bytes(key: ObjectKey | None) -> bytes:
    """All of a key, so that an object is never taken for that of another one; nothing for ``None``."""
    if key is None:
        return b""
    return json.dumps([key.model_name, key.kv_rank, key.object_group_id, key.chunk_hash.hex(), key.cache_salt]).encode()


def key_of(name: bytes) -> ObjectKey:
    """The key with these bytes."""
    model_name, kv_rank, object_group_id, chunk_hash, cache_salt = json.loads(name)
    return ObjectKey(bytes.fromhex(chunk_hash), model_name, kv_rank, object_group_id, cache_salt)


def known(items: Iterable[tuple[bytes, int]]) -> list[tuple[ObjectKey, int]]:
    """Keys and sizes of what is LMCache's: another engine may use the folder as well."""
    found = []
    for name, size in items:
        with suppress(ValueError, TypeError):
            found.append((key_of(name), size))
    return found


def regions_of(shapes: Sequence[Any], dtypes: Sequence[Any], uint8: str = "bytes") -> list[Region]:
    """What the bytes of an object are: a region for each of its groups."""
    regions = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        name = TORCH_DTYPES.get(str(dtype), "bytes")
        if str(dtype) == "torch.uint8":
            name = uint8
        sizes = tuple(int(size) for size in shape)
        # Of what is stored as it is the bytes count, of which the last dimension has more.
        regions.append(Region(name, sizes if name != "bytes" or not sizes else (*sizes[:-1], sizes[-1] * int(dtype.itemsize))))
    return regions


class _Serde:
    """What both directions need.

    Parameters
    ----------
    uint8
        What groups of ``uint8`` are: ``"bytes"``, or ``"e4m3"`` or ``"e5m2"`` for caches that keep fp8 so.
    options
        Those of the coder: ``scheme``, ``bases``, ``head_dim``, ``parts``, ``checksums``, ``threads``.
    """

    def __init__(self, *, uint8: str = "bytes", **options: Any) -> None:
        if uint8 not in ("bytes", "e4m3", "e5m2"):
            raise ArgumentError(f"uint8 cannot be {uint8!r}; it must be one of bytes, e4m3, e5m2")
        self._uint8 = uint8
        self._coder = ObjectCoder(**options)

    def _regions(self, obj: MemoryObj) -> list[Region]:
        return regions_of(obj.get_shapes(), obj.get_dtypes(), self._uint8)


class SplitZipSerializer(_Serde, Serializer):  # type: ignore[misc]
    """Compresses objects; see :class:`_Serde`."""

    def serialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey | None = None) -> int:
        """Compresses ``src`` into the start of ``dst``, and returns how many bytes that are."""
        out = memoryview(dst.byte_array).cast("B")
        return self._coder.encode(self._regions(src), memoryview(src.byte_array).cast("B"), key_bytes(key), out).nbytes

    def estimate_serialized_size(self, layout_desc: MemoryLayoutDesc) -> int:
        """The most bytes that objects of a layout can have when they are compressed: about 0.1 to 0.3 percent more than they are."""
        return self._coder.bound(regions_of(layout_desc.shapes, layout_desc.dtypes, self._uint8))


class SplitZipDeserializer(_Serde, Deserializer):  # type: ignore[misc]
    """Decompresses objects; see :class:`_Serde`."""

    def deserialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey | None = None) -> None:
        """Decompresses what starts ``src`` into ``dst``. What is damaged, or the object of another key or layout, is an error, and gone from the folders of this process."""
        frame, memory = memoryview(src.byte_array).cast("B"), memoryview(dst.byte_array).cast("B")
        try:
            self._coder.decode(self._regions(dst), frame, memory, key_bytes(key))
        except FrameError:
            if key is not None:
                for adapter in list(_adapters):
                    adapter.discard(key)
            raise


def _create(kwargs: dict[str, object]) -> SerdeProcessor:
    options = pick(dict(kwargs), {"max_workers": 1}, ("uint8", "scheme", "bases", "head_dim", "parts", "checksums", "threads"), "the serde splitzip")
    workers = options.pop("max_workers")
    if not isinstance(workers, int) or workers < 1:
        raise ArgumentError(f"max_workers must be a number of at least 1, and is {workers!r}")
    return AsyncSerdeProcessor(SplitZipSerializer(**options), SplitZipDeserializer(**options), max_workers=workers)


def register() -> None:
    """Registers the serde ``"splitzip"``. Importing this module has done it; twice is no error."""
    if SERDE not in get_registered_serde_types():
        register_serde_factory(SERDE, _create)


#: Those of this process, which forget what a deserializer has found damaged.
_adapters: weakref.WeakSet[FolderL2Adapter] = weakref.WeakSet()


class FolderL2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """Keeps objects of any length in files of a folder. Files are there after a restart, and several processes may share the folder.

    Parameters
    ----------
    params
        ``adapter_params`` of the plugin: ``folder``; ``max_bytes`` (0, no limit; what was not used for longest goes first, unless an eviction policy of LMCache was
        faster); ``workers`` (4, threads for files); ``sync`` (false, whether a file is on the disk before it counts).
    l1_memory_desc
        Not needed.
    """

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None) -> None:
        options = pick(dict(params), {"max_bytes": 0, "workers": 4, "sync": False}, ("folder",), "the adapter")
        if "folder" not in options:
            raise ArgumentError("the adapter needs a folder: \"adapter_params\": {\"folder\": ..}")
        workers = options["workers"]
        if not isinstance(workers, int) or workers < 1:
            raise ArgumentError(f"workers must be a number of at least 1, and is {workers!r}")
        self._store = FolderStore(options["folder"], max_bytes=options["max_bytes"], sync=bool(options["sync"]))
        self._notices = Notices(logger)
        super().__init__(max_capacity_bytes=self._store.max_bytes)
        self._fds = {what: create_event_notifier() for what in ("store", "lookup", "load")}
        self._done: dict[str, dict[int, Any]] = {what: {} for what in self._fds}
        self._guard = threading.Lock()
        self._next = 0
        self._closed = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="splitzip-folder")
        _adapters.add(self)

    def get_store_event_fd(self) -> int:
        """See :class:`L2AdapterInterface`."""
        return int(self._fds["store"].fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        """See :class:`L2AdapterInterface`."""
        return int(self._fds["lookup"].fileno())

    def get_load_event_fd(self) -> int:
        """See :class:`L2AdapterInterface`."""
        return int(self._fds["load"].fileno())

    def submit_store_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Stores objects that are not there yet."""
        return self._submit("store", self._store_all, L2StoreResult(False, 0), list(keys), list(objects))

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """See :class:`L2AdapterInterface`."""
        with self._guard:
            done, self._done["store"] = self._done["store"], {}
        return done

    def submit_lookup_and_lock_task(self, keys: list[ObjectKey], group_layout_descs: dict[int, MemoryLayoutDesc]) -> int:
        """Looks for objects; those that are there are not evicted until they are unlocked."""
        return self._submit("lookup", self._look_up, Bitmap(len(keys)), list(keys))

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """See :class:`L2AdapterInterface`."""
        with self._guard:
            return self._done["lookup"].pop(task_id, None)

    def submit_unlock(self, keys: list[ObjectKey]) -> None:
        """See :class:`L2AdapterInterface`."""
        for key in keys:
            self._store.unpin(key_bytes(key))

    def submit_load_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Reads objects, and narrows the memory for each to what it has."""
        return self._submit("load", self._load_all, Bitmap(len(keys)), list(keys), list(objects))

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """See :class:`L2AdapterInterface`."""
        with self._guard:
            return self._done["load"].pop(task_id, None)

    def delete(self, keys: list[ObjectKey]) -> None:
        """Removes objects."""
        deleted, sizes = [], []
        for key in keys:
            try:
                size = self._store.delete(key_bytes(key))
            except (Error, OSError) as error:
                self._notices.warn("an object was not removed", error, self._store.describe(key_bytes(key)))
                continue
            if size is not None:
                deleted.append(key)
                sizes.append(size)
        if deleted:
            self._notify_keys_deleted(deleted, sizes)

    def discard(self, key: ObjectKey) -> None:
        """Removes an object that was found damaged. It is a miss then, also where its file cannot be removed."""
        size = self._store.discard(key_bytes(key))
        if size is not None:
            self._notify_keys_deleted([key], [size])

    def set_backend_identity(self, name: str, shared: bool = False) -> None:
        """See :class:`L2AdapterInterface`. Then says what is there from before."""
        super().set_backend_identity(name, shared)
        items = known(self._store.items())
        if items:
            self._notify_keys_stored([key for key, _ in items], [size for _, size in items])

    def register_listener(self, listener: L2AdapterListener) -> None:
        """Registers a listener, and tells it what is there from before."""
        super().register_listener(listener)
        items = known(self._store.items())
        if items:
            listener.on_l2_keys_stored([key for key, _ in items], [size for _, size in items])

    def get_usage(self) -> AdapterUsage:
        """Bytes of the files, also of those from before."""
        by_salt: dict[str, int] = {}
        for key, size in known(self._store.items()):
            by_salt[key.cache_salt] = by_salt.get(key.cache_salt, 0) + size
        return AdapterUsage(self._store.nbytes, self._store.max_bytes, by_salt)

    def list_l2_keys(self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None) -> KeyListPage:
        """The keys of what is there, page by page."""
        if page_size <= 0:
            raise ValueError(f"page_size must be positive, and is {page_size}")
        if cursor is not None and not cursor.isdecimal():
            raise ValueError(f"{cursor!r} is no cursor of this adapter")
        found = [(key, size) for key, size in known(sorted(self._store.items())) if model_name in (None, key.model_name)]
        start = int(cursor or 0)
        entries = tuple(KeyEntry(key.to_encoded_object_key(), size) for key, size in found[start : start + page_size])
        end = start + page_size
        return KeyListPage(entries, str(end) if end < len(found) else None)

    def report_status(self) -> dict[str, Any]:
        """See :class:`L2AdapterInterface`."""
        return {
            "is_healthy": not self._closed and self._store.folder.is_dir(),
            "type": type(self).__name__,
            "folder": str(self._store.folder),
            "objects": len(self._store),
            "bytes": self._store.nbytes,
            "max_bytes": self._store.max_bytes,
        }

    def close(self) -> None:
        """Waits for what was submitted."""
        if self._closed:
            return
        self._closed = True
        _adapters.discard(self)
        self._pool.shutdown(wait=True)
        for fd in self._fds.values():
            fd.close()

    def _submit(self, what: str, work: Callable[..., Any], failed: Any, *arguments: Any) -> int:
        with self._guard:
            task = self._next
            self._next += 1

        def run() -> None:
            result = failed
            try:
                result = work(*arguments)
            except Exception:
                logger.exception("task %d (%s) failed", task, what)
            with self._guard:
                self._done[what][task] = result
            self._fds[what].notify()

        self._pool.submit(run)
        return task

    def _store_all(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> L2StoreResult:
        stored, sizes, written, whole = [], [], 0, True
        for key, obj in zip(keys, objects, strict=True):
            try:
                size, evicted = self._store.put(key_bytes(key), obj.byte_array)
            except (Error, OSError) as error:
                self._notices.warn("an object was not stored", error, self._store.describe(key_bytes(key)))
                whole = False
                continue
            gone = known(evicted)
            if gone:
                self._notify_keys_deleted([of for of, _ in gone], [bytes_gone for _, bytes_gone in gone])
            if size:
                stored.append(key)
                sizes.append(size)
                written += obj.get_size()
        if stored:
            self._notify_keys_stored(stored, sizes)
        return L2StoreResult(whole, written)

    def _look_up(self, keys: list[ObjectKey]) -> Bitmap:
        found, learned, sizes = Bitmap(len(keys)), [], []
        for number, key in enumerate(keys):
            name = key_bytes(key)
            # Pinned first, so that it does not go between the two.
            self._store.pin(name)
            try:
                size, new = self._store.look(name)
            except Error as error:
                self._notices.warn("an object was not found", error, self._store.describe(name))
                size, new = None, False
            if size is None:
                self._store.unpin(name)
                continue
            found.set(number)
            if new:
                learned.append(key)
                sizes.append(size)
        if learned:
            # Of another process, so far unknown here.
            self._notify_keys_stored(learned, sizes)
        return found

    def _load_all(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> Bitmap:
        loaded = Bitmap(len(keys))
        for number, (key, obj) in enumerate(zip(keys, objects, strict=True)):
            try:
                obj.set_used_size(self._store.read_into(key_bytes(key), obj.byte_array))
                loaded.set(number)
            except KeyError:
                continue
            except (Error, OSError) as error:
                self._notices.warn("an object was not loaded", error, self._store.describe(key_bytes(key)))
        accessed = [keys[number] for number in loaded.get_indices_list()]
        if accessed:
            self._notify_keys_accessed(accessed)
        return loaded


register()
