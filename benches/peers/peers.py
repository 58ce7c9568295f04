#!/usr/bin/env python3
"""Measures other lossless codecs beside SplitZip: the same tensors, the same device, one run, one table.

    python3 benches/peers/peers.py setup
    python3 benches/peers/peers.py run KV.safetensors --splitzip target/release/splitzip
    python3 benches/peers/peers.py bars KV.safetensors --splitzip target/release/splitzip
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rows import Row
    from tensors import Tensors

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
VENV = HERE.parents[1] / "target" / "peers"
KINDS = ("cpu", "gpu")
GPU_MIB = (2, 32, 512)


def rounds(text: str) -> int:
    if (number := int(text)) < 2:
        raise argparse.ArgumentTypeError(f"{number} is too few for a median and its spread; give 2 or more")
    return number


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="make a virtual environment in target/peers and install the peers into it, by name")
    setup.add_argument("--system-site-packages", action="store_true", help="use what this Python already has")
    run = commands.add_parser("run", help="measure, and print the table")
    run.add_argument("files", nargs="+", type=Path, metavar="KV.safetensors", help="float tensors, of one dtype a file")
    run.add_argument("--splitzip", type=Path, metavar="PATH", help="the splitzip command, for its rows in the table")
    run.add_argument("--device", type=int, default=0, metavar="N", help="which GPU (default: 0)")
    bars = commands.add_parser("bars", help="measure what the CPU codec is held to, and print how far it is from that")
    bars.add_argument("files", nargs=1, type=Path, metavar="KV.safetensors", help="float tensors of one dtype that w4 can have")
    bars.add_argument("--splitzip", type=Path, metavar="PATH", required=True, help="the splitzip command")
    for command in (run, bars):
        command.add_argument("--mib", type=lambda text: [int(size) for size in text.split(",")], metavar="N,N", help="sizes that tensors "
                             "are tiled to (default: GPU 2,32,512; CPU the file as it is, and for bars 24 before it)")
        command.add_argument("--rounds", type=rounds, default=11, metavar="N", help="rounds on the CPU, after one to warm up (default: 11)")
        command.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
        command.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well, a line of JSON each")
    for command in (setup, run):
        command.add_argument("--only", choices=KINDS, help="leave the other kind of device out")
    return parser.parse_args()


def kinds(only: str | None) -> list[str]:
    return [only] if only else list(KINDS)


def set_up(options: argparse.Namespace) -> int:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", *["--system-site-packages"] * options.system_site_packages, str(VENV)], check=True)
    python = str(VENV / "bin" / "python")
    for kind in kinds(options.only):
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(HERE / f"requirements-{kind}.txt")], check=True)
    subprocess.run([python, "-m", "pip", "list", "--local"], check=True)
    size = sum(file.stat().st_size for file in VENV.rglob("*") if file.is_file() and not file.is_symlink())
    print(f"took {time.monotonic() - began:.0f} s and {size / 1e6:.0f} MB in {VENV}")
    return 0


def in_environment() -> None:
    """Goes on in the environment of `setup`, where there is one."""
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix) != VENV:
        os.execv(python, [str(python), *sys.argv])


def progress(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr)


# The modules of the peers are imported where they are used: one kind of device does without the packages of the other.


def sizes(kind: str, tensors: "Tensors", options: argparse.Namespace) -> list[int]:
    if options.mib:
        return [size << 20 for size in options.mib]
    return [tensors.payload.size] if kind == "cpu" else [size << 20 for size in GPU_MIB]


def measure_peers(kind: str, tensors: "Tensors", options: argparse.Namespace) -> "Iterator[Row]":
    if kind == "cpu":
        import cpu_peers

        return cpu_peers.measure(tensors, sizes(kind, tensors, options), options.rounds)
    import gpu_peers

    return gpu_peers.measure(tensors, sizes(kind, tensors, options), options.device, progress)


def measure_splitzip(kind: str, tensors: "Tensors", options: argparse.Namespace) -> "Iterator[Row]":
    if not options.splitzip:
        return iter(())
    import splitzip_rows

    return splitzip_rows.measure(options.splitzip, kind, tensors, sizes(kind, tensors, options), options.device)


def run(options: argparse.Namespace) -> int:
    in_environment()
    try:
        from rows import table
        from tensors import BadInput, load
    except ImportError as error:
        print(f"peers: {error}; `peers.py setup` installs what is needed", file=sys.stderr)
        return 2
    rows, failed = [], []
    try:
        files = [load(path) for path in options.files]
    except (BadInput, OSError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    for kind in kinds(options.only):
        for tensors in files:
            for measure in (measure_peers, measure_splitzip):
                # What fails leaves a table of what was measured before.
                try:
                    for row in measure(kind, tensors, options):
                        rows.append(row)
                except ImportError as error:
                    failed.append(f"{kind}: {error}; `peers.py setup --only {kind}` installs what is needed")
                except Exception as error:  # noqa: BLE001
                    failed.append(f"{kind}, {tensors.name}: {type(error).__name__}: {error}")
    print(table(rows, options.markdown))
    if options.json:
        options.json.write_text("".join(json.dumps(row.record()) + "\n" for row in rows), encoding="utf-8")
    failed += [f"{row.codec}, {row.settings}: {row.error or 'differs after decoding'}" for row in rows if row.error or not row.verified]
    for line in failed:
        print(f"peers: {line}", file=sys.stderr)
    return 1 if failed or not rows else 0


THREADS = 2
BARS_MIB = 24


def bars(options: argparse.Namespace) -> int:
    in_environment()
    try:
        import bars as cpu_bars
        from rows import table
        from splitzip_rows import BenchError
        from tensors import BadInput, load
    except ImportError as error:
        print(f"peers: {error}; `peers.py setup --only cpu` installs what is needed", file=sys.stderr)
        return 2
    rows, found = [], []
    try:
        tensors = load(options.files[0])
        whole = tensors.payload.size
        sizes = [size << 20 for size in options.mib or []] or sorted({min(BARS_MIB << 20, whole), whole})
        for size in sizes:
            measured = cpu_bars.measure(options.splitzip, tensors, size, options.rounds, THREADS)
            rows += measured.rows
            found += measured.bars
            progress(f"{tensors.name}, {size / (1 << 20):.0f} MiB: done")
    except (BadInput, BenchError, cpu_bars.NoBars, OSError, ImportError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    print(table(rows, options.markdown))
    print(cpu_bars.table(found, options.markdown))
    if options.json:
        lines = [row.record() for row in rows] + [bar.record() for bar in found]
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    failed = [f"{row.codec}, {row.settings}: differs after decoding" for row in rows if not row.verified]
    failed += [f"{bar.raw_bytes >> 20} MiB, {bar.what}: {bar.measured:.2f}, not {bar.least}" for bar in found if not bar.holds]
    for line in failed:
        print(f"peers: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    options = arguments()
    sys.exit({"setup": set_up, "run": run, "bars": bars}[options.command](options))
