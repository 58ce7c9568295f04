"""Objects in files of a folder: what the integrations of serving engines share.

A file has its key in front, so that one in the place of another is found, and is named by a hash of it, so that no key leads out of the folder. It is written beside its place and
then renamed: readers see all of it or nothing, in other processes as well.

The folder may hold what is not of the store, and entries that cannot be read. They are left alone: an odd entry is a miss, and never more than that.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import stat
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._notices import Notices, short
from .errors import ArgumentError, CorruptError, Error, TruncatedError

logger = logging.getLogger(__name__)

# Magic, version, bytes of the key, bytes of the object, CRC-32 of all this and of the key.
_HEADER = struct.Struct("<8sIIQI")
_MAGIC = b"SPZSTORE"
_VERSION = 1
#: How a file starts.
_OURS = struct.pack("<8sI", _MAGIC, _VERSION)
_MOST_KEY = 1 << 16
_SUFFIX = ".object"
_TEMPORARY = ".tmp"
#: Temporary files that are older were left by a process that is gone.
_STALE_SECONDS = 3600
#: The names that the store gives. All others are those of somebody else.
_NAME = re.compile(r"[0-9a-f]{64}(\.object|\.[0-9]+\.[0-9]+\.tmp)")
#: So many entries that are left alone are named in the log of a start; the others are counted.
_MOST_NAMED = 20


class FolderFullError(Error):
    """There is no room in the folder: everything in it is in use, or the object alone is larger than it may be."""


class ForeignFileError(Error):
    """What is in the place of an object is none of this store: it is left alone."""


class _NewerError(ForeignFileError):
    """It is that of another version of the store."""


class FolderStore:
    """Objects by their keys, in files of one folder. Any number of threads and processes may share it.

    Parameters
    ----------
    folder
        Where the files are. Made when it is not there.
    max_bytes
        The most bytes that the files may have; what was not used for longest goes first. 0 is no limit. Each process counts what it has seen.
    sync
        Whether a file is on the disk before it is renamed. Without it a loss of power may leave files that are damaged, which is found.
    """

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int = 0, sync: bool = False) -> None:
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
            raise ArgumentError(f"the folder must be the name of one, and is {folder!r}")
        if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < 0:
            raise ArgumentError(f"max_bytes must be a number of bytes (0 for no limit), and is {max_bytes!r}")
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self._sync = sync
        self._lock = threading.Lock()
        self._counter = itertools.count()
        #: Bytes of the files, the one that was not used for longest in front.
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._writing: dict[bytes, int] = {}
        self._pins: dict[bytes, int] = {}
        self._bytes = 0
        #: Names of files that could not be loaded, which files these were, and whether they must stay. They are misses until they are other files.
        self._spurned: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._notices = Notices(logger)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scan()

    def _scan(self) -> None:
        found: list[tuple[int, bytes, int]] = []
        left: list[str] = []
        for path in _entries(self.folder, left):
            try:
                self._look_at(path, found)
            except FileNotFoundError:
                # Of another process, which has removed it.
                continue
            except (CorruptError, TruncatedError) as error:
                self._spurn(path, error)
                try:
                    path.unlink(missing_ok=True)
                    logger.warning("%s; it is removed", error)
                except OSError as refused:
                    left.append(f"{error}; it cannot be removed: {refused}")
            except ForeignFileError as error:
                self._spurn(path, error)
                left.append(str(error))
            except OSError as error:
                self._spurn(path, error)
                left.append(f"{path} is left alone: {error}")
        for number, message in enumerate(left):
            # Names may be no text at all.
            text = message.encode(errors="backslashreplace").decode()
            logger.log(logging.WARNING if number < _MOST_NAMED else logging.DEBUG, "%s", text)
        if len(left) > _MOST_NAMED:
            logger.warning("%d more entries of %s are left alone; the level DEBUG names them", len(left) - _MOST_NAMED, self.folder)
        for _, key, size in sorted(found):
            self._sizes[key] = size
            self._bytes += size

    def _look_at(self, path: Path, found: list[tuple[int, bytes, int]]) -> None:
        """Appends time of use, key and size of an object; removes the temporary file of a process that is gone."""
        if not _NAME.fullmatch(path.name) or path.parent.name != path.name[:2]:
            raise ForeignFileError(f"{path} has no name that this store gives; it is left alone")
        if path.suffix == _TEMPORARY:
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink()
            return
        with _open(path) as file:
            key, _ = self._head(file, None, path)
            status = os.fstat(file.fileno())
        if path != self._path(key):
            raise ForeignFileError(f"{path} is the file of another object than its name says; it is left alone")
        found.append((status.st_mtime_ns, key, status.st_size))

    @property
    def nbytes(self) -> int:
        """Bytes of all files, with those that are being written."""
        with self._lock:
            return self._bytes + sum(self._writing.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._sizes)

    def items(self) -> list[tuple[bytes, int]]:
        """The keys, and the bytes of their files."""
        with self._lock:
            return list(self._sizes.items())

    def __contains__(self, key: bytes) -> bool:
        """Whether there is an object, also one of another process."""
        return self.look(key)[0] is not None

    def look(self, key: bytes) -> tuple[int | None, bool]:
        """The bytes of the file of an object (``None`` when there is none), and whether this process has not known of it."""
        path = self._path(key)
        try:
            status = os.stat(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._notices.warn("an object was not found", error, self.describe(key))
            self._forget(key)
            return None, False
        if not stat.S_ISREG(status.st_mode) or self._is_spurned(path, status):
            self._forget(key)
            return None, False
        size = status.st_size
        with self._lock:
            new = key not in self._sizes and key not in self._writing
            if new:
                self._add(key, size)
        return size, new

    def put(self, key: bytes, *pieces: Any) -> tuple[int, list[tuple[bytes, int]]]:
        """Stores an object.

        Parameters
        ----------
        key
            Its key.
        pieces
            Its bytes, one buffer behind the other.

        Returns
        -------
        int, list of (key, bytes)
            Bytes of its file, or 0 when there was one already; and what had to go for it.

        Raises
        ------
        FolderFullError
            When there is no room and nothing can go.
        ForeignFileError
            When the file of another version of the store is in its place.
        OSError
            When it cannot be written.
        """
        path, views = self._path(key), [memoryview(piece).cast("B") for piece in pieces]
        nbytes = sum(view.nbytes for view in views)
        head = self._new_head(key, nbytes)
        size = len(head) + nbytes
        if key in self:
            return 0, []
        self._check_place(path)
        with self._lock:
            if key in self._writing:
                return 0, []
            evicted = self._make_room(key, size)
            self._writing[key] = size
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.{next(self._counter)}{_TEMPORARY}")
        try:
            for other, _ in evicted:
                self._evict(other)
            # The folder as well: somebody may have removed it.
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "xb", buffering=0) as file:
                for view in (memoryview(head), *views):
                    while view.nbytes:
                        view = view[file.write(view) :]
                if self._sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            with self._lock:
                del self._writing[key]
            raise
        with self._lock:
            del self._writing[key]
            self._spurned.pop(path.name, None)
            self._add(key, size)
        return size, evicted

    def read(self, key: bytes) -> bytearray:
        """The bytes of an object.

        Raises
        ------
        KeyError
            When there is none.
        FrameError
            When its file is damaged, or that of another object. The file is removed.
        ForeignFileError
            When what is in its place is none of this store. It is left alone.
        OSError
            When it cannot be read. After each of these the object is a miss in this process, until it was stored anew.
        """
        return self._read(key, None)[0]

    def read_into(self, key: bytes, memory: Any) -> int:
        """Reads an object into memory of at least its size, and returns how many bytes it has.

        Raises
        ------
        KeyError, FrameError, ForeignFileError, OSError
            As :meth:`read`.
        ArgumentError
            When the memory is too small.
        """
        return self._read(key, memoryview(memory).cast("B"))[1]

    def _read(self, key: bytes, memory: memoryview | None) -> tuple[bytearray, int]:
        path = self._path(key)
        made = bytearray()
        try:
            with _open(path) as file:
                if self._is_spurned(path, os.fstat(file.fileno())):
                    self._forget(key)
                    raise KeyError(key)
                _, nbytes = self._head(file, key, path)
                if memory is None:
                    made = bytearray(nbytes)
                    memory = memoryview(made)
                elif memory.nbytes < nbytes:
                    raise ArgumentError(f"the object in {path} has {nbytes} bytes, and the memory for it {memory.nbytes}; give a larger one")
                _fill(file, memory[:nbytes], path)
        except FileNotFoundError:
            self._forget(key)
            raise KeyError(key) from None
        except (CorruptError, TruncatedError):
            self.discard(key)
            raise
        except (ForeignFileError, OSError) as error:
            self._spurn(path, error)
            self._forget(key)
            raise
        self.touch([key])
        return made, nbytes

    def discard(self, key: bytes) -> int | None:
        """Removes an object that was found damaged, and returns the bytes that its file had. Where the file cannot be removed that is logged, and it is a miss all the same."""
        self._spurn(self._path(key))
        with self._lock:
            known = self._sizes.get(key)
        try:
            return self.delete(key)
        except OSError as error:
            self._notices.warn("a damaged file cannot be removed, and is a miss", error, self.describe(key))
            self._forget(key)
            return known

    def delete(self, key: bytes) -> int | None:
        """Removes an object, and returns the bytes that its file had; ``None`` when there was none."""
        path = self._path(key)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            size = None
        self._forget(key)
        return size

    def touch(self, keys: Iterable[bytes]) -> None:
        """Says that objects were used."""
        for key in keys:
            with self._lock:
                known = key in self._sizes
                if known:
                    self._sizes.move_to_end(key)
            if known and self.max_bytes:
                # So that a process that comes later knows as well.
                try:
                    os.utime(self._path(key))
                except OSError:
                    continue

    def pin(self, key: bytes) -> None:
        """Keeps an object from being evicted, until it was unpinned as often."""
        with self._lock:
            self._pins[key] = self._pins.get(key, 0) + 1

    def unpin(self, key: bytes) -> None:
        """See :meth:`pin`."""
        with self._lock:
            count = self._pins.pop(key, 0) - 1
            if count > 0:
                self._pins[key] = count

    def clear(self) -> None:
        """Removes all objects that this process knows of. Those that cannot be removed stay, which is logged."""
        for key, _ in self.items():
            self._evict(key)
            self._forget(key)

    def describe(self, key: bytes) -> str:
        """A key and its file, for messages."""
        try:
            return f"key {short(key)}, file {self._path(key)}"
        except ArgumentError:
            return f"key {short(key)}"

    def _evict(self, key: bytes) -> None:
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            self._notices.warn("a file that has to go cannot be removed", error, self.describe(key))

    def _spurn(self, path: Path, error: BaseException | None = None) -> None:
        """Makes a file a miss, until another one is in its place."""
        with suppress(OSError):
            identity = _identity(os.stat(path))
            with self._lock:
                self._spurned[path.name] = (identity, isinstance(error, _NewerError))

    def _is_spurned(self, path: Path, status: os.stat_result) -> bool:
        with self._lock:
            identity, _ = self._spurned.get(path.name, (None, False))
        return identity == _identity(status)

    def _check_place(self, path: Path) -> None:
        """What another version of the store has written is not overwritten."""
        with self._lock:
            _, stays = self._spurned.get(path.name, (None, False))
        if stays and path.exists():
            raise ForeignFileError(f"{path} is the file of another version of the store, and stays; use a folder for each version")

    def _make_room(self, key: bytes, size: int) -> list[tuple[bytes, int]]:
        """Takes out of the list what has to go, with the lock held."""
        evicted: list[tuple[bytes, int]] = []
        if not self.max_bytes:
            return evicted
        free = self.max_bytes - self._bytes - sum(self._writing.values())
        for other, other_size in self._sizes.items():
            if free >= size:
                break
            if other not in self._pins:
                evicted.append((other, other_size))
                free += other_size
        if free < size:
            raise FolderFullError(
                f"an object of {size} bytes does not fit into {self.folder}: at most {self.max_bytes} bytes are allowed there, and what is there is in use; "
                "allow more, or store less"
            )
        for other, other_size in evicted:
            del self._sizes[other]
            self._bytes -= other_size
        return evicted

    def _add(self, key: bytes, size: int) -> None:
        self._bytes += size - self._sizes.pop(key, 0)
        self._sizes[key] = size

    def _forget(self, key: bytes) -> None:
        with self._lock:
            self._bytes -= self._sizes.pop(key, 0)

    def _path(self, key: bytes) -> Path:
        if not isinstance(key, bytes) or not 0 < len(key) <= _MOST_KEY:
            raise ArgumentError(f"a key is 1 to {_MOST_KEY} bytes, and this is {short(key)}")
        name = hashlib.sha256(key).hexdigest()
        return self.folder / name[:2] / (name + _SUFFIX)

    @staticmethod
    def _new_head(key: bytes, nbytes: int) -> bytes:
        start = _HEADER.pack(_MAGIC, _VERSION, len(key), nbytes, 0)[:-4]
        return start + zlib.crc32(start + key).to_bytes(4, "little") + key

    @staticmethod
    def _head(file: Any, key: bytes | None, path: Path) -> tuple[bytes, int]:
        """The key of a file, and the bytes of its object: compared with ``key``, if that is known, and with the size of the file."""
        header = memoryview(bytearray(_HEADER.size))
        try:
            _fill(file, header, path)
        except TruncatedError:
            if not _OURS.startswith(bytes(header[: len(_OURS)]).rstrip(b"\0")):
                raise ForeignFileError(f"{path} is no file of this store; it is left alone") from None
            raise
        magic, version, key_bytes, nbytes, check = _HEADER.unpack(header)
        found = memoryview(bytearray(key_bytes if key_bytes <= _MOST_KEY else 0))
        if magic != _MAGIC or version != _VERSION:
            _check_damaged(file, magic, version, header, found, path)
        if not 0 < key_bytes <= _MOST_KEY:
            raise CorruptError(f"the start of {path} says that the key has {key_bytes} bytes: it is damaged")
        _fill(file, found, path)
        if zlib.crc32(bytes(header[:-4]) + bytes(found)) != check:
            raise CorruptError(f"the start of {path} does not match its check: it is damaged")
        if key is not None and found != key:
            raise CorruptError(f"{path} is the file of another object than its name says")
        size = os.fstat(file.fileno()).st_size
        if size != _HEADER.size + key_bytes + nbytes:
            raise TruncatedError(f"{path} has {size} bytes, and its start says {_HEADER.size + key_bytes + nbytes}")
        return bytes(found), nbytes


def _entries(folder: Path, left: list[str]) -> Iterator[Path]:
    """What has the endings of the store, in the folders below that it makes. Folders that cannot be read are named in ``left``."""
    for below in sorted(os.listdir(folder)):
        if not re.fullmatch("[0-9a-f]{2}", below):
            continue
        try:
            names = os.listdir(folder / below)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            left.append(f"{folder / below} is left alone: {error}")
            continue
        for name in names:
            if name.endswith((_SUFFIX, _TEMPORARY)):
                yield folder / below / name


def _open(path: Path) -> Any:
    """Opens a regular file. What is none is not waited for: a pipe has no end."""
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ForeignFileError(f"{path} is no regular file; it is left alone")
    return file


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Tells a file from the one that was in its place before."""
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _check_damaged(file: Any, magic: bytes, version: int, header: memoryview, found: memoryview, path: Path) -> None:
    """A start that is not ours: damage where it is ours but for magic and version, or was never written; the file of somebody else otherwise."""
    if not any(header):
        raise CorruptError(f"the start of {path} is empty, as after a loss of power: it is damaged")
    with suppress(TruncatedError):
        _fill(file, found, path)
        if found.nbytes and zlib.crc32(_OURS + bytes(header[len(_OURS) : -4]) + bytes(found)).to_bytes(4, "little") == header[-4:]:
            raise CorruptError(f"the start of {path} has another magic or version than its check says: it is damaged")
    if magic == _MAGIC:
        raise _NewerError(f"{path} is of version {version} of the store, and this is version {_VERSION}; it is left alone")
    raise ForeignFileError(f"{path} is no file of this store; it is left alone")


def _fill(file: Any, memory: memoryview, path: Path) -> None:
    while memory.nbytes:
        count = file.readinto(memory)
        if not count:
            raise TruncatedError(f"{path} ends too early")
        memory = memory[count:]
