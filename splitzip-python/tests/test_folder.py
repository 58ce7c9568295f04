"""Files of objects: there after a restart, whole or not at all, never of another key, and no more than may be."""

from __future__ import annotations

import errno
import hashlib
import logging
import multiprocessing
import os
import pathlib
import shutil
import threading
import time

import pytest
import splitzip
from splitzip._folder import FolderFullError, FolderStore, ForeignFileError
from splitzip._notices import Notices


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_store_read_delete(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path / "new" / "folder")
    assert b"a" not in store and store.nbytes == 0
    size, evicted = store.put(b"a", b"one ", bytearray(b"object"))
    assert size == 28 + 1 + 10 and evicted == [] and store.nbytes == size and len(store) == 1
    assert store.put(b"a", b"another") == (0, [])
    assert store.read(b"a") == b"one object"
    memory = bytearray(12)
    assert store.read_into(b"a", memory) == 10 and memory == b"one object\0\0"
    with pytest.raises(splitzip.ArgumentError, match="has 10 bytes, and the memory for it 9"):
        store.read_into(b"a", bytearray(9))
    assert b"a" in store
    with pytest.raises(KeyError):
        store.read(b"b")
    assert store.delete(b"a") == size and store.delete(b"a") is None and store.nbytes == 0 and files(tmp_path) == []
    store.put(b"empty")
    assert store.read(b"empty") == b""
    store.clear()
    assert len(store) == 0 and files(tmp_path) == []


def test_it_survives_a_restart(tmp_path: pathlib.Path) -> None:
    store = FolderStore(tmp_path, sync=True)
    for number in range(20):
        store.put(b"key %d" % number, b"x" * number)
    again = FolderStore(tmp_path)
    assert sorted(again.items()) == sorted(store.items()) and again.nbytes == store.nbytes
    assert all(again.read(b"key %d" % number) == b"x" * number for number in range(20))


def test_no_key_leads_out_of_the_folder(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "inside"
    store = FolderStore(folder)
    keys = [b"../outside", b"/etc/passwd", b"..", b".", b"a/b", b"a\0b", b"\n", "ключ".encode(), b"x" * 65536]
    for key in keys:
        store.put(key, key)
    assert all(store.read(key) == key for key in keys)
    assert files(tmp_path) == files(folder) and len(files(folder)) == len(keys)
    for bad in (b"", b"x" * 65537, "text", None):
        with pytest.raises(splitzip.ArgumentError, match="a key is 1 to 65536 bytes"):
            store.put(bad, b"x")  # type: ignore[arg-type]


def test_damaged_files_are_misses(tmp_path: pathlib.Path) -> None:
    """Truncated, lengthened, with a byte of the start changed, swapped: an error, and gone."""
    payload = b"object" * 100

    def damage(how: str, path: pathlib.Path) -> None:
        data = bytearray(path.read_bytes())
        if how.isdecimal():
            data[int(how)] ^= 4
        else:
            data = {"empty": bytearray(), "half": data[: len(data) // 2], "longer": data + b"x", "short": data[:-1]}[how]
        path.write_bytes(data)

    for how in ["empty", "half", "longer", "short", *map(str, range(28 + 3))]:
        for restart in (False, True):
            store = FolderStore(tmp_path)
            store.put(b"key", payload)
            (path,) = files(tmp_path)
            damage(how, path)
            if restart:
                store = FolderStore(tmp_path)
                assert len(store) == 0 and store.nbytes == 0
                with pytest.raises(KeyError):
                    store.read(b"key")
            else:
                with pytest.raises((splitzip.CorruptError, splitzip.TruncatedError)):
                    store.read_into(b"key", bytearray(1000))
            assert files(tmp_path) == [] and b"key" not in store
            assert store.put(b"key", payload)[0] > 0 and store.read(b"key") == payload
            store.clear()
    store = FolderStore(tmp_path)
    store.put(b"one", b"1" * 10)
    store.put(b"two", b"2" * 10)
    one, two = files(tmp_path)
    shutil.copy(one, tmp_path / "kept")
    shutil.copy(two, one)
    shutil.copy(tmp_path / "kept", two)
    for key in (b"one", b"two"):
        with pytest.raises(splitzip.CorruptError, match="another object"):
            store.read(key)
        assert key not in store


def test_what_was_not_used_for_longest_goes_first(tmp_path: pathlib.Path) -> None:
    head, events = 28 + 1, []
    store = FolderStore(tmp_path, max_bytes=3 * (head + 100))
    for key in (b"a", b"b", b"c"):
        store.put(key, bytes(100))
    store.read(b"a")
    events += store.put(b"d", bytes(100))[1]
    assert events == [(b"b", head + 100)] and b"b" not in store and len(files(tmp_path)) == 3
    store.touch([b"c"])
    assert store.put(b"e", bytes(100))[1] == [(b"a", head + 100)]
    # One that is in use stays.
    store.pin(b"d")
    store.pin(b"d")
    store.unpin(b"d")
    assert store.put(b"f", bytes(200))[1] == [(b"c", head + 100), (b"e", head + 100)]
    store.pin(b"f")
    with pytest.raises(FolderFullError, match="is in use"):
        store.put(b"g", bytes(100))
    assert store.nbytes <= store.max_bytes and b"g" not in store
    store.unpin(b"d")
    store.put(b"g", bytes(100))
    assert b"d" not in store
    with pytest.raises(FolderFullError, match="at most"):
        store.put(b"large", bytes(1000))
    # A restart keeps the order of use.
    again = FolderStore(tmp_path, max_bytes=store.max_bytes)
    assert [key for key, _ in again.items()] == [b"f", b"g"]


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk half-way leaves no file and no wrong count."""
    store = FolderStore(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        store.put(b"a", b"x")
    monkeypatch.undo()
    assert files(tmp_path) == [] and store.nbytes == 0
    assert store.put(b"a", b"x")[0] > 0
    for bad in ("", 5, None):
        with pytest.raises(splitzip.ArgumentError, match="the folder must be"):
            FolderStore(bad)  # type: ignore[arg-type]
    with pytest.raises(splitzip.ArgumentError, match="max_bytes must be"):
        FolderStore(tmp_path, max_bytes=-1)


def test_what_others_have_left(tmp_path: pathlib.Path) -> None:
    """Temporary files of processes that are gone are removed, fresh ones are left alone, and files that are none of ours as well."""
    store = FolderStore(tmp_path)
    store.put(b"a", b"x")
    folder = files(tmp_path)[0].parent
    stem = files(tmp_path)[0].stem
    old, fresh, other, theirs = folder / f"{stem}.1.2.tmp", folder / f"{stem}.3.4.tmp", tmp_path / "README", folder / "draft.tmp"
    for path in (old, fresh, other, theirs):
        path.write_bytes(b"x")
    for path in (old, theirs):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    assert len(FolderStore(tmp_path)) == 1
    assert not old.exists() and fresh.exists() and other.exists() and theirs.exists()


def path_of(folder: pathlib.Path, key: bytes) -> pathlib.Path:
    name = hashlib.sha256(key).hexdigest()
    return folder / name[:2] / f"{name}.object"


def refuse(monkeypatch: pytest.MonkeyPatch, what: str, paths: set[pathlib.Path]) -> None:
    """Has the system refuse files, also to root, whom permissions do not stop."""
    error = PermissionError(errno.EACCES, "Permission denied")
    if what == "open":
        real_open = os.open
        monkeypatch.setattr(os, "open", lambda name, *rest, **named: raise_(error) if pathlib.Path(name) in paths else real_open(name, *rest, **named))
    else:
        real_unlink = pathlib.Path.unlink
        monkeypatch.setattr(pathlib.Path, "unlink", lambda self, *rest, **named: raise_(error) if self in paths else real_unlink(self, *rest, **named))


def raise_(error: Exception) -> None:
    raise error


def test_odd_entries_do_not_stop_a_start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be read or removed, directories, loops of links and pipes: named in the log, once, and misses; all others are there."""
    store = FolderStore(tmp_path)
    kinds = ["unreadable", "damaged", "directory", "loop", "pipe"]
    for kind in [*kinds, "good"]:
        store.put(kind.encode(), b"object")
    places = {kind: path_of(tmp_path, kind.encode()) for kind in [*kinds, "good"]}
    places["damaged"].write_bytes(b"")
    for kind in ("directory", "loop", "pipe"):
        places[kind].unlink()
    places["directory"].mkdir()
    places["loop"].symlink_to(places["loop"].name)
    os.mkfifo(places["pipe"])
    below = places["good"].parent
    more = [below / "mine.object", below / "mine.tmp", below / f"{places['good'].stem}.1.2.tmp", below / "loop.object", below / "loop.tmp", below / "pipe.object"]
    for path in more[:3]:
        path.mkdir()
    os.utime(more[2], (0, 0))
    for path in more[3:5]:
        path.symlink_to(path.name)
    os.mkfifo(more[5])
    refuse(monkeypatch, "open", {places["unreadable"]})
    refuse(monkeypatch, "unlink", {places["damaged"]})
    again = FolderStore(tmp_path)
    odd = [places[kind] for kind in kinds] + more
    for path in odd:
        assert sum(str(path) in record.getMessage() for record in caplog.records) == 1, path
        assert os.path.lexists(path)
    assert [key for key, _ in again.items()] == [b"good"] and again.read(b"good") == b"object"
    for kind in kinds:
        assert kind.encode() not in again, kind
        with pytest.raises((KeyError, OSError, ForeignFileError)):
            again.read(kind.encode())
    # Where nothing but the old file was in the way, a new one takes its place.
    monkeypatch.undo()
    for kind in ("unreadable", "damaged", "loop", "pipe"):
        assert again.put(kind.encode(), b"new")[0] > 0 and again.read(kind.encode()) == b"new"
    with pytest.raises(OSError, match="directory"):
        again.put(b"directory", b"new")
    assert b"directory" not in again and [path for path in files(tmp_path) if path.suffix == ".tmp"] == []


def test_names_that_are_no_text(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / os.fsdecode(b"\xff.object")).write_bytes(b"x")
    assert len(FolderStore(tmp_path)) == 0 and len(files(tmp_path)) == 1
    (record,) = caplog.records
    assert "\\udcff.object has no name" in record.getMessage().encode().decode()


def test_many_odd_entries_are_counted(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ab").mkdir()
    for number in range(50):
        (tmp_path / "ab" / f"{number}.object").write_bytes(b"x")
    assert len(FolderStore(tmp_path)) == 0
    assert len(caplog.records) == 21 and "30 more entries" in caplog.records[-1].getMessage() and len(files(tmp_path)) == 50


def test_files_of_others_are_left_alone(tmp_path: pathlib.Path) -> None:
    """Files of other names, of other magic and of a newer version stay as they are, at a start and later."""
    store = FolderStore(tmp_path)
    store.put(b"ours", b"object")
    ours = path_of(tmp_path, b"ours")
    newer, git, moved, brief = (path_of(tmp_path, key) for key in (b"newer", b"git", b"moved", b"brief"))
    for path in (newer, git, moved, brief):
        path.parent.mkdir(exist_ok=True)
    brief.write_bytes(b"SPZSTORE" + (2).to_bytes(4, "little"))
    newer.write_bytes(b"SPZSTORE" + (2).to_bytes(4, "little") + b"another header, longer than that of version 1")
    git.write_bytes(b"blob 100\0" + b"x" * 100)
    shutil.copy(ours, moved)
    theirs = [newer, git, moved, brief, ours.parent / "mine.object", ours.parent / "mine.tmp", ours.parent / f"{'0' * 64}.object"]
    for path in theirs[4:]:
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
    before = {path: path.read_bytes() for path in theirs}
    again = FolderStore(tmp_path)
    assert [key for key, _ in again.items()] == [b"ours"]
    for key in (b"newer", b"git", b"moved", b"brief"):
        assert key not in again
    with pytest.raises(ForeignFileError, match="another version of the store"):
        again.put(b"newer", b"older")
    # One that came while this process ran.
    with pytest.raises(ForeignFileError, match="is of version 2"):
        store.read(b"newer")
    assert b"newer" not in store
    with pytest.raises(ForeignFileError, match="another version of the store"):
        store.put(b"newer", b"older")
    again.clear()
    assert not ours.exists() and {path: path.read_bytes() for path in theirs} == before


def test_what_was_damaged_is_a_miss_until_it_is_stored_anew(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Also where its file cannot be removed; the error of the damage is the one that is raised."""
    store, other = FolderStore(tmp_path), FolderStore(tmp_path)
    store.put(b"key", b"object" * 10)
    path = path_of(tmp_path, b"key")
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    refuse(monkeypatch, "unlink", {path})
    with pytest.raises(splitzip.TruncatedError):
        store.read(b"key")
    assert "a damaged file cannot be removed" in caplog.text and "Permission denied" in caplog.text and str(path) in caplog.text
    assert b"key" not in store and path.exists() and store.nbytes == 0
    with pytest.raises(KeyError):
        store.read(b"key")
    monkeypatch.undo()
    # By this process.
    assert store.put(b"key", b"anew")[0] > 0 and b"key" in store and store.read(b"key") == b"anew"
    # Found by whoever decodes it, and stored by another process.
    refuse(monkeypatch, "unlink", {path})
    store.discard(b"key")
    assert b"key" not in store and b"key" in other
    monkeypatch.undo()
    other.delete(b"key")
    other.put(b"key", b"by another")
    assert b"key" in store and store.read(b"key") == b"by another"
    # A directory in its place.
    path.unlink()
    path.mkdir()
    with pytest.raises((OSError, ForeignFileError)):
        store.read(b"key")
    assert b"key" not in store and store.discard(b"key") is None
    path.rmdir()
    assert store.put(b"key", b"x")[0] > 0
    # Not to be read.
    refuse(monkeypatch, "open", {path})
    with pytest.raises(PermissionError):
        store.read(b"key")
    assert b"key" not in store
    monkeypatch.undo()
    assert b"key" not in store and store.put(b"key", b"y")[0] > 0 and store.read(b"key") == b"y"


def test_a_folder_that_was_removed_is_made_anew(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "new" / "folder"
    store = FolderStore(folder, max_bytes=1000)
    store.put(b"a", bytes(600))
    shutil.rmtree(tmp_path / "new")
    assert b"a" not in store
    for key in (b"a", b"b"):
        assert store.put(key, bytes(600))[0] > 0 and store.read(key) == bytes(600)
    assert store.nbytes == sum(path.stat().st_size for path in files(folder)) <= 1000


def test_messages_are_few_and_name_key_and_file(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    notices = Notices(logging.getLogger("test"), lambda: now[0])
    store = FolderStore(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")
    for number in range(1000):
        notices.warn("a block was not stored", full, store.describe(b"key %d" % number))
        now[0] += 0.01
    (message,) = (record.getMessage() for record in caplog.records)
    assert message == f"a block was not stored: key b'key 0', file {path_of(tmp_path, b'key 0')}: [Errno 28] No space left on device"
    # Another kind is not held back.
    notices.warn("a block was not stored", PermissionError(errno.EACCES, "Permission denied"), "key")
    notices.warn("a block was not loaded", full, "key")
    assert len(caplog.records) == 3
    now[0] = 61
    notices.warn("a block was not stored", full, "key")
    assert "and 999 more of these in the last 61 seconds" in caplog.records[-1].getMessage()
    now[0] = 200
    notices.warn("a block was not stored", full, "key")
    assert "more of these" not in caplog.records[-1].getMessage() and len(caplog.records) == 5
    for size in (60_000, 100_000):
        long = store.describe(b"k" * size)
        assert f"of {size} bytes" in long and len(long) < 300 + len(str(tmp_path))
    with pytest.raises(splitzip.ArgumentError) as raised:
        store.put(b"k" * 100_000, b"x")
    assert "of 100000 bytes" in str(raised.value) and len(str(raised.value)) < 300


def _hammer(folder: str, seed: int, rounds: int) -> int:
    store, hits = FolderStore(folder, max_bytes=40_000), 0
    for number in range(rounds):
        key = b"%d" % ((number * 7 + seed) % 50)
        payload = key * 500
        try:
            if number % 11 == 0:
                store.delete(key)
            elif number % 2:
                store.put(key, payload)
            else:
                hits += store.read(key) == payload or exit_wrong()
        except (KeyError, FolderFullError):
            continue
    return hits


def exit_wrong() -> bool:
    raise AssertionError("an object was not what was stored")


def test_many_threads_and_processes(tmp_path: pathlib.Path) -> None:
    """Readers see a whole object or none, while others write and delete it."""
    folder, wrong = str(tmp_path / "shared"), []

    def run(store: FolderStore, seed: int) -> None:
        for number in range(300):
            key = b"%d" % ((number * 7 + seed) % 50)
            try:
                if number % 13 == 0:
                    store.delete(key)
                elif number % 2:
                    store.put(key, key * 500)
                elif store.read(key) != key * 500:
                    wrong.append(key)
            except (KeyError, FolderFullError):
                continue
            except Exception as error:
                wrong.append(error)

    shared = FolderStore(folder, max_bytes=40_000)
    threads = [threading.Thread(target=run, args=(shared, seed)) for seed in range(4)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap_async(_hammer, [(folder, seed, 400) for seed in range(4)])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(results.get(timeout=120)) > 0
    assert not wrong, wrong[0]
    left = FolderStore(folder)
    assert all(left.read(key) == key * 500 for key, _ in left.items())
    assert not list(pathlib.Path(folder).rglob("*.tmp"))
