"""Messages about what fails again and again: the first of a kind is logged, then at most one a minute with a count."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

#: Between two messages of a kind.
_SECONDS = 60.0
_MOST_CHARACTERS = 100


class Notices:
    """Warnings of one logger. Any number of threads may use it.

    Parameters
    ----------
    logger
        Where they go.
    clock
        Seconds that do not go back.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        #: When a kind was logged, and how many were not since then.
        self._kinds: dict[tuple[Any, ...], tuple[float, int]] = {}

    def warn(self, what: str, error: BaseException, of: str) -> None:
        """Says that something failed. Of a kind is what has the same ``what`` and the same error, whatever it happened to.

        Parameters
        ----------
        what
            What did not happen.
        error
            Why.
        of
            What it happened to: a key, a file.
        """
        kind, now = (what, type(error), getattr(error, "errno", None)), self._clock()
        with self._lock:
            last, held = self._kinds.get(kind, (None, 0))
            if last is not None and now - last < _SECONDS:
                self._kinds[kind] = (last, held + 1)
                return
            self._kinds[kind] = (now, 0)
        if held and last is not None:
            self._logger.warning("%s: %s: %s (and %d more of these in the last %d seconds)", what, of, error, held, now - last)
        else:
            self._logger.warning("%s: %s: %s", what, of, error)


def short(key: object) -> str:
    """A key for messages, of which nobody reads 100 kB. Keys of engines start alike and differ at the end."""
    if isinstance(key, bytes) and len(key) > _MOST_CHARACTERS:
        return f"{key[: _MOST_CHARACTERS // 2]!r}..{key[-_MOST_CHARACTERS // 2 :]!r} of {len(key)} bytes"
    return f"{key!r:.{_MOST_CHARACTERS}}"
