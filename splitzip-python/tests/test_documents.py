"""Examples in documents run."""

from __future__ import annotations

import re

import pytest
from conftest import REPOSITORY

DOCUMENTS = ["README.md", "splitzip-python/README.md", "docs/python.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples(document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / document).read_text()
    blocks = re.findall(r"```python( no-run)?\n(.*?)```", text, re.DOTALL)
    assert blocks, f"{document} has no example"
    monkeypatch.chdir(REPOSITORY)
    scope: dict = {}
    for skipped, code in blocks:
        compile(code, document, "exec")
        if "import torch" in code and not skipped:
            pytest.importorskip("torch", reason=f"SKIPPED: PyTorch is not installed, so an example of {document} was not run")
        if not skipped:
            exec(compile(code, document, "exec"), scope)


def test_docstrings() -> None:
    import doctest

    import splitzip
    from splitzip import _api

    for module in (splitzip, _api):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed


def test_everything_public_has_a_docstring() -> None:
    import splitzip

    bare = []
    for name in splitzip.__all__:
        public = getattr(splitzip, name)
        if name.startswith("_"):
            continue
        if not public.__doc__:
            bare.append(name)
        if isinstance(public, type) and public.__module__.startswith("splitzip"):
            members = {member: value for member, value in vars(public).items() if not member.startswith("_")}
            # What holds the places of slots says nothing.
            bare += [f"{name}.{member}" for member, value in members.items() if not value.__doc__ and type(value).__name__ != "member_descriptor"]
    assert not bare
