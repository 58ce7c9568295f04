"""The bars of the CPU codec: how many times as fast as ZipNN and blosc2 it has to be, and what its own rows owe each other.

Everything takes turns, round by round: each peer once, then `splitzip bench` as a child, once for each level of instructions, with one thread and
with several. A bar is a ratio of two times of the same round, so that a machine whose speed drifts slows both; what counts is the median of
the rounds.
"""

import importlib.metadata
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cpu_peers import PEERS, name_of_cpu, seconds
from rows import Row, grid, spread
from splitzip_rows import bench
from tensors import MIB, Tensors

# What `SPLITZIP_CPU_LEVEL` takes, what the command then says, and how people call it.
LEVELS = {"avx512": ("2", "AVX-512"), "avx2": ("1", "AVX2")}
SCHEMES = ("w2x3", "w4")
# Times as fast as a peer on one thread.
LEAST = [
    ("avx512", "encode", "zipnn", 10.0),
    ("avx512", "decode", "zipnn", 6.0),
    ("avx512", "encode", "blosc2", 12.0),
    ("avx2", "encode", "zipnn", 7.0),
    ("avx2", "decode", "zipnn", 4.5),
    ("avx2", "encode", "blosc2", 9.0),
]
# Several threads beside one, for two of them.
LEAST_OF_TWO_THREADS = 1.8
# `splitzip bench` runs everything at least so often, and says the median.
RUNS = 5

# Encoding and decoding, in seconds.
Times = dict[str, float]
# By the name of a peer, or by level, scheme and threads.
Round = dict[str | tuple[str, str, int], Times]


class NoBars(Exception):
    """There is nothing that a bar could be held to; the message says why."""


@dataclass(frozen=True)
class Bar:
    raw_bytes: int
    what: str
    least: float
    measured: float
    quartiles: tuple[float, float]

    @property
    def holds(self) -> bool:
        return self.measured >= self.least

    def cells(self) -> list[str]:
        low, high = self.quartiles
        measured, quartiles = f"{self.measured:.2f}", f"{low:.2f} to {high:.2f}"
        return [f"{self.raw_bytes / MIB:.0f}", self.what, f"{self.least:.1f}", measured, quartiles, "yes" if self.holds else "NO"]

    def record(self) -> dict:
        return {"bar": self.what} | asdict(self) | {"holds": self.holds}


def table(bars: list[Bar], markdown: bool) -> str:
    titles = ["MiB", "bar, one thread unless it says two", "at least", "measured", "quartiles", "holds"]
    return grid([titles, *[bar.cells() for bar in bars]], [True, False, True, True, True, False], markdown)


@dataclass(frozen=True)
class Measured:
    rows: list[Row]
    bars: list[Bar]


def child(command: Path, tensors: Tensors, size: int, level: str, threads: int) -> tuple[str, list[dict]]:
    """The instructions that the command used, and its rows."""
    environment = os.environ | {"SPLITZIP_CPU_LEVEL": level}
    more = ["--threads", f"1,{threads}", "--schemes", ",".join(SCHEMES), "--bases", "chunk", "--runs", str(RUNS)]
    found = bench(command, ["--device", "cpu", *more], tensors, [size], environment)
    return found["devices"][0]["instructions"], found["rows"]


def levels_of(command: Path, tensors: Tensors, threads: int) -> list[str]:
    """Those that this machine has."""
    found, _ = child(command, tensors, MIB, "2", threads)
    levels = [level for level in LEVELS if level == found or found == "avx512"]
    if not levels:
        raise NoBars(f"this processor has neither AVX-512 nor AVX2 as {command} wants them (it uses {found}): there are no bars for it")
    return levels


def measure(command: Path, tensors: Tensors, size: int, rounds: int, threads: int) -> Measured:
    levels = levels_of(command, tensors, threads)
    raw = tensors.tiled(size).tobytes()
    codecs = {name: make(tensors, size) for name, (_, make) in PEERS.items()}
    sizes: dict = {}
    wrong: set[str] = set()
    all_rounds: list[Round] = []
    for number in range(rounds + 1):  # the first one warms up
        this: Round = {}
        for name, (encode, decode, spoil) in codecs.items():
            fresh = bytearray(raw)
            encoded, frame = seconds(lambda: encode(fresh))
            spoil()
            decoded, back = seconds(lambda: decode(frame))
            this[name] = {"encode": encoded, "decode": decoded}
            sizes[name] = len(frame)
            if back != raw:
                wrong.add(name)
        for level in levels:
            wanted, _ = LEVELS[level]
            used, rows = child(command, tensors, size, wanted, threads)
            if used != level:
                raise NoBars(f"{command} used {used} where {level} was asked for")
            for row in rows:
                key = (level, row["scheme"], row["threads"])
                this[key] = {what: row[what]["seconds"] for what in ("encode", "decode")} | {"copy": row["copy"]["seconds"]}
                sizes[key] = row["coded_bytes"]
        if number:
            all_rounds.append(this)
    return Measured(list(table_rows(tensors, size, all_rounds, sizes, wrong)), list(bars_of(size, all_rounds, levels, threads)))


def table_rows(tensors: Tensors, size: int, rounds: list[Round], sizes: dict, wrong: set[str]) -> Iterator[Row]:
    head = {"device": "CPU", "data": tensors.name, "dtype": tensors.dtype, "raw_bytes": size}
    for threads in sorted({key[2] for key in rounds[0] if not isinstance(key, str)}):
        copy = statistics.median(copied(rounds, threads))
        yield Row(**head, codec="copy", settings=f"{name_of_cpu()}, {counted(threads)}", ratio=1.0, encode_seconds=copy, decode_seconds=copy,
                  copy_seconds=copy, verified=True)
    for key in rounds[0]:
        times = {what: [this[key][what] for this in rounds] for what in rounds[0][key]}
        encode, decode = (statistics.median(times[what]) for what in ("encode", "decode"))
        settings, copy, verified = "", None, True
        if isinstance(key, str):
            settings = f"{importlib.metadata.version(key)}, {PEERS[key][0]}"
            verified = key not in wrong
        else:
            level, scheme, threads = key
            settings = f"{scheme}, {LEVELS[level][1]}, {counted(threads)}"
            copy = statistics.median(copied(rounds, threads))
        yield Row(**head, codec=key if isinstance(key, str) else "SplitZip", settings=settings, ratio=size / sizes[key],
                  encode_seconds=encode, decode_seconds=decode, copy_seconds=copy, verified=verified,
                  spread=(spread(times["encode"]), spread(times["decode"])))


def copied(rounds: list[Round], threads: int) -> list[float]:
    """Times of the copies with so many threads."""
    return [times["copy"] for this in rounds for key, times in this.items() if not isinstance(key, str) and key[2] == threads]


def counted(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def bars_of(size: int, rounds: list[Round], levels: list[str], threads: int) -> Iterator[Bar]:
    def bar(what: str, least: float, slower: tuple, faster: tuple) -> Bar:
        ratios = [this[slower[0]][slower[1]] / this[faster[0]][faster[1]] for this in rounds]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return Bar(size, what, least, middle, (low, high))

    for level, what, peer, least in LEAST:
        if level in levels:
            yield bar(f"w2x3, {LEVELS[level][1]}: {what}, times {peer}", least, (peer, what), ((level, "w2x3", 1), what))
    for level in levels:
        name = LEVELS[level][1]
        yield bar(f"{name}: decode of w4, times w2x3", 1.0, ((level, "w2x3", 1), "decode"), ((level, "w4", 1), "decode"))
        if threads == 2:
            for what in ("encode", "decode"):
                key = (level, "w2x3")
                yield bar(f"w2x3, {name}: {what} of two threads, times one", LEAST_OF_TWO_THREADS, ((*key, 1), what), ((*key, 2), what))
