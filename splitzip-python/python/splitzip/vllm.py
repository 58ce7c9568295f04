"""vLLM: a secondary tier that keeps the blocks of the offloading connector in a folder, compressed without losing a bit.

The tier is loaded by its module path, in the extra config of the offloading connector:

.. code-block:: json

   {"secondary_tiers": [{"type": "SplitZipTier", "module_path": "splitzip.vllm", "folder": "/var/cache/kv", "dtype": "bf16"}]}

Blocks are bytes to a tier, so ``dtype`` says what they are. Tried with vLLM 0.33.0, whose interface of tiers is experimental.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

try:
    from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, OffloadKey, ReqContext, RequestOffloadingContext
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob
except ImportError as error:
    raise ImportError(f"splitzip.vllm needs vLLM 0.33.0 or newer ({error}): pip install 'splitzip[vllm]'", name=error.name) from error

from ._dtypes import SIZES
from ._folder import FolderStore
from ._notices import Notices
from ._objects import ObjectCoder, Region
from .errors import ArgumentError, FrameError

__all__ = ["SplitZipTier"]

logger = logging.getLogger(__name__)


class SplitZipTier(SecondaryTierManager):  # type: ignore[misc]
    """Keeps blocks in files of a folder, each as one frame.

    Parameters
    ----------
    offloading_spec, primary_kv_view, tier_type, backpressure_detector
        Given by vLLM.
    folder
        Where the files are. Several engines may share it: model, layout and rank are part of every key.
    dtype
        What the elements of blocks are: ``"bf16"``, ``"fp16"``, ``"e4m3"``, ``"e5m2"``, or ``"bytes"`` to store blocks as they are.
    head_dim
        Where keys and values of a head share a row (the fused layouts): elements of a head. Keys and values then are coded apart.
    scheme, bases, checksums, threads
        As for :class:`splitzip.Codec`: ``scheme`` is ``"w2x3"``, ``"w3"``, ``"w2x2x3"`` or ``"stored"``, ``bases`` ``"auto"`` or ``"chunk"``; ``threads`` (1) work on one block.
    workers
        How many blocks are worked on at a time.
    max_bytes
        The most bytes that the files may have; what was not used for longest goes first. 0 is no limit.
    sync
        Whether a file is on the disk before it counts.
    locality
        ``"LOCAL"`` or ``"REMOTE"``, for the filters of requests.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        folder: str,
        dtype: str,
        head_dim: int | None = None,
        scheme: Any = "w2x3",
        bases: str = "auto",
        checksums: Any = "tensor",
        threads: int | None = 1,
        workers: int = 4,
        max_bytes: int = 0,
        sync: bool = False,
        locality: str | None = None,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if dtype not in SIZES:
            raise ArgumentError(f"there is no dtype {dtype!r}; it must be one of {', '.join(SIZES)}")
        if not isinstance(workers, int) or workers < 1:
            raise ArgumentError(f"workers must be a number of at least 1, and is {workers!r}")
        if not primary_kv_view.c_contiguous or self.block_size_bytes % SIZES[dtype]:
            raise ArgumentError(
                f"blocks of {self.block_size_bytes} bytes must lie one behind the other and be whole elements of {dtype}; name the dtype of the cache, or \"bytes\""
            )
        self.locality = None if locality is None else Locality(locality)
        self._coder = ObjectCoder(
            scheme=scheme, bases=bases, head_dim=head_dim, fused=head_dim is not None, checksums=checksums, threads=threads
        )
        self._regions = [Region(dtype, (self.block_size_bytes // SIZES[dtype],))]
        self._memory = primary_kv_view.cast("B")
        self._namespace = _namespace(offloading_spec, self.block_size_bytes, dtype)
        self._store = FolderStore(folder, max_bytes=max_bytes, sync=sync)
        self._notices = Notices(logger)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="splitzip-tier")
        self._guard = threading.Condition()
        self._finished: list[JobResult] = []
        #: How many blocks of a job are left.
        self._running: dict[int, int] = {}

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Whether there is a block."""
        return LookupResult.HIT if self._name(key) in self._store else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Compresses blocks and stores those that are not there."""
        self._submit(job_metadata, self._store_block, "a block was not stored")

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Reads blocks and decompresses them into their places. What is damaged is removed and reported as failed; the others are successful."""
        self._submit(job_metadata, self._load_block, "a block was not loaded")

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """The jobs that were finished since the last call."""
        with self._guard:
            finished, self._finished = self._finished, []
        return finished

    def has_pending_work(self) -> bool:
        """Whether a job is running, or its result was not taken."""
        with self._guard:
            return bool(self._running or self._finished)

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Says that blocks were used."""
        self._store.touch(self._name(key) for key in keys)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Has no wishes."""
        return RequestOffloadingContext()

    def drain_jobs(self) -> None:
        """Waits for all jobs."""
        with self._guard:
            self._guard.wait_for(lambda: not self._running)

    def shutdown(self) -> None:
        """Waits for all jobs, and ends the threads."""
        self._pool.shutdown(wait=True)

    def _name(self, key: OffloadKey) -> bytes:
        return self._namespace + bytes(key)

    def _submit(self, job: TransferJob, work: Callable[[bytes, memoryview], None], failed: str) -> None:
        keys, chunks = list(job.keys), [int(chunk) for chunk in job.chunk_ids]
        if len(keys) != len(chunks):
            logger.error("%d keys and %d blocks were given; the job failed", len(keys), len(chunks))
            chunks = [-1] * len(keys)
        start = time.monotonic()
        done: set[OffloadKey] = set()

        def run(key: OffloadKey, chunk: int) -> None:
            succeeded = self._run(key, chunk, work, failed)
            with self._guard:
                if succeeded:
                    done.add(key)
                self._running[job.job_id] -= 1
                if self._running[job.job_id] == 0:
                    finish()

        def finish() -> None:
            del self._running[job.job_id]
            partial = job.is_promotion and 0 < len(done) < len(keys)
            result = JobResult(
                job_id=job.job_id,
                success=len(done) == len(keys),
                successful_keys=tuple(key for key in keys if key in done) if partial else None,
                transfer_time=time.monotonic() - start,
                transfer_bytes=len(done) * self.block_size_bytes,
            )
            self._finished.append(result)
            self._guard.notify_all()

        with self._guard:
            self._running[job.job_id] = len(keys)
            if not keys:
                finish()
        for key, chunk in zip(keys, chunks):
            self._pool.submit(run, key, chunk)

    def _run(self, key: OffloadKey, chunk: int, work: Callable[[bytes, memoryview], None], failed: str) -> bool:
        name = b""
        try:
            name = self._name(key)
            at = chunk * self.block_size_bytes
            if not 0 <= at < self._memory.nbytes:
                raise ArgumentError(f"there is no block {chunk} in the primary tier")
            work(name, self._memory[at : at + self.block_size_bytes])
            return True
        except KeyError:
            return False
        except Exception as error:
            self._notices.warn(failed, error, self._store.describe(name))
            return False

    def _store_block(self, name: bytes, block: memoryview) -> None:
        if name not in self._store:
            self._store.put(name, self._coder.encode(self._regions, block, name).data)

    def _load_block(self, name: bytes, block: memoryview) -> None:
        frame = self._store.read(name)
        try:
            self._coder.decode(self._regions, frame, block, name)
        except FrameError:
            self._store.discard(name)
            raise


def _namespace(spec: Any, block_bytes: int, dtype: str) -> bytes:
    """What keys of other models, layouts and ranks differ in. Where vLLM says that blocks are the same bytes for any parallelism, that is left out."""
    fields: dict[str, Any] = {"block_bytes": block_bytes, "dtype": dtype}
    if spec is not None:
        config = spec.config
        parallel = config.parallel
        fields |= {
            "model": [config.model.name, str(config.model.dtype)],
            "tokens_per_hash": config.cache.tokens_per_hash,
            "blocks_per_chunk": config.cache.blocks_per_chunk,
            "groups": [[group.tokens_per_block, *group.layer_names] for group in config.groups],
            "layout": [config.kv_cache_layout, config.canonical_layout, config.replicated_layout],
        }
        if not parallel.is_parallelism_agnostic:
            fields["parallel"] = [parallel.rank, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size]
    return json.dumps(fields, sort_keys=True).encode() + b"\0"
