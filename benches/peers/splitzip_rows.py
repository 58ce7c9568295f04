"""SplitZip's own rows: `splitzip bench` measures itself, as a child of this process, on the same file and at the same sizes."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rows import Row
from tensors import Tensors

# The first version of what `--json` prints; another one may mean something else by these names.
SCHEMA = 1


class BenchError(Exception):
    """`splitzip bench` failed, or printed what cannot be read."""


def measure(command: Path, kind: str, tensors: Tensors, sizes: list[int], ordinal: int) -> Iterator[Row]:
    device = ["--device", "cpu", "--threads", "1"]
    if kind == "gpu":
        device = ["--device", f"cuda:{ordinal}", "--placement", "canonical,arrival"]
    for row in bench(command, device, tensors, sizes)["rows"]:
        yield row_of(row, tensors, f"GPU {ordinal}" if kind == "gpu" else "CPU")


def bench(command: Path, options: list[str], tensors: Tensors, sizes: list[int], environment: dict[str, str] | None = None) -> dict:
    """What `splitzip bench` says as JSON."""
    sizes_of = ",".join(map(str, sizes))
    call = [command.resolve(), "bench", *options, "--data", tensors.path, "--dtypes", tensors.dtype, "--sizes", sizes_of, "--json"]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(map(str, call))}` ended with exit code {done.returncode}")
    found = json.loads(done.stdout)
    if found["schema"] != SCHEMA:
        raise BenchError(f"{command} prints version {found['schema']} of its JSON, and this script reads {SCHEMA}")
    return found


def row_of(found: dict, tensors: Tensors, device: str) -> Row:
    bases = found["bases"] and f"{found['bases']} bases"
    placement = found["placement"] if device != "CPU" else "1 thread"
    times = [found[what] for what in ("encode", "decode")]
    encode_spread, decode_spread = ((time["quartiles"][1] - time["quartiles"][0]) / time["seconds"] for time in times)
    return Row(
        device=device,
        data=tensors.name,
        dtype=found["dtype"],
        raw_bytes=found["raw_bytes"],
        codec="SplitZip",
        settings=", ".join(filter(None, [found["scheme"], bases, placement])),
        ratio=found["ratio"],
        encode_seconds=found["encode"]["seconds"],
        decode_seconds=found["decode"]["seconds"],
        copy_seconds=found["copy"]["seconds"],
        verified=found["verified"],
        spread=(encode_spread, decode_spread),
    )
