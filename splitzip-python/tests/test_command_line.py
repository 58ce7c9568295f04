"""Frames of the command line, and those of this package from the same tensors, are the same bytes."""

from __future__ import annotations

import os
import pathlib
import subprocess

import numpy as np
import pytest
import splitzip
from conftest import FIXTURE

BINARY = os.environ.get("SPLITZIP_BIN")

pytestmark = pytest.mark.skipif(
    not BINARY, reason="SKIPPED: SPLITZIP_BIN names no splitzip binary, so its frames were not compared with ours (cargo xtask test sets it)"
)


def frames_of(file: bytes) -> list[bytes]:
    """The frames of an .spz file, by its index: docs/files.md."""
    footer = file[-32:]
    assert footer[24:] == b"SPZ-END\n"
    start = int.from_bytes(footer[:8], "little")
    count = int.from_bytes(file[start + 8 : start + 16], "little")
    frames = []
    for number in range(count):
        record = start + 48 + 40 * number
        at, size = (int.from_bytes(file[record + offset : record + offset + 8], "little") for offset in (0, 8))
        frames.append(file[at : at + size])
    return frames


@pytest.mark.parametrize("options", [("w4", "chunk"), ("w3", "chunk"), ("w2x3", "channel"), ("w2x2x3", "auto"), ("auto", "auto")])
def test_frames_are_the_same_bytes(tmp_path: pathlib.Path, options: tuple[str, str]) -> None:
    scheme, bases = options
    target = tmp_path / "kv.spz"
    command = [BINARY, "compress", FIXTURE, "-o", target, "--scheme", scheme, "--bases", bases]
    subprocess.run(command, check=True, capture_output=True)
    original, at = FIXTURE.read_bytes(), 0
    frames = frames_of(target.read_bytes())
    for frame in frames:
        found = splitzip.inspect(frame)
        pieces, described = [], found["tensors"]
        for piece in described:
            words = np.frombuffer(original[at : at + piece["raw_bytes"]], np.uint8)
            pieces.append(words.view(np.uint16 if piece["dtype"] == "bf16" else np.uint8).reshape(piece["shape"]))
            at += piece["raw_bytes"]
        assert found["packed"] and found["tensor_checksums"]
        ours = splitzip.compress_batch(
            pieces,
            packed=True,
            **{f"{key}s" if key in ("name", "id") else key: [piece[key] for piece in described] for key in ("name", "id", "dtype", "scheme", "bases")},
        )
        assert bytes(ours) == frame
        for decoded, piece in zip(splitzip.decompress_batch(frame), pieces):
            assert bytes(decoded) == piece.tobytes()
    assert at == len(original)


def test_choices_are_the_same(tmp_path: pathlib.Path, fixture: dict[str, np.ndarray]) -> None:
    target = tmp_path / "kv.spz"
    subprocess.run([BINARY, "compress", FIXTURE, "-o", target, "--scheme", "auto"], check=True, capture_output=True)
    theirs = {}
    for frame in frames_of(target.read_bytes()):
        theirs |= {of["name"]: (of["scheme"], of["bases"]) for of in splitzip.inspect(frame)["tensors"] if of["name"]}
    ours = splitzip.inspect(splitzip.compress_batch(fixture, scheme="auto", bases="auto"))["tensors"]
    assert {of["name"]: (of["scheme"], of["bases"]) for of in ours} == theirs


def test_codebook_files_are_the_same(tmp_path: pathlib.Path, fixture: dict[str, np.ndarray]) -> None:
    target = tmp_path / "codebooks.json"
    subprocess.run([BINARY, "calibrate", FIXTURE, "-o", target], check=True, capture_output=True)
    codebooks, default = splitzip.codebooks_from_json(target.read_text())
    assert splitzip.calibrate(fixture) == codebooks
    assert splitzip.calibrate(list(fixture.values())) == default
    assert splitzip.codebooks_to_json(codebooks, default) == target.read_text()
