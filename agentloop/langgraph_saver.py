"""LangGraph's checkpoints in a store of ours: `builder.compile(checkpointer=JournalSaver(store))`.

A thread is a run of the store; checkpoints, channel values and pending writes are rows that are
only ever appended, so that a channel's value is stored once however many checkpoints hold it. Each
thread has one writer at a time, as every run has. Needs the extra `langgraph`.

Values go through LangGraph's own serialiser, which makes msgpack and no pickle.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from agentloop.blocking import run_blocking
from agentloop.errors import GraphError
from agentloop.langgraph_rows import EMPTY, SavedThread, make_row
from agentloop.stores import Row, RunLog, Store

_base: Any
try:
    _base = importlib.import_module("langgraph.checkpoint.base")
except ImportError:
    _base = None


class _NoSaver:
    """What LangGraph's own class offers, as far as it is used here."""

    serde: Any

    def __init__(self, *, serde: Any = None) -> None:
        self.serde = serde


if TYPE_CHECKING:
    _Saver = _NoSaver
else:
    _Saver = _NoSaver if _base is None else _base.BaseCheckpointSaver
Config: TypeAlias = Any  # langchain's RunnableConfig, a dict with "configurable"
_PREFIX = "langgraph:"


class JournalSaver(_Saver):
    """A LangGraph checkpointer on a store of runs.

    Args:
        store: Where threads are recorded.
        serde: LangGraph's serialiser, if not its default.

    Raises:
        GraphError: LangGraph is not installed.
    """

    def __init__(self, store: Store, *, serde: Any = None) -> None:
        if _base is None:
            raise GraphError(
                "JournalSaver needs LangGraph's checkpoint package: "
                "pip install 'agentloop[langgraph]'"
            )
        super().__init__(serde=serde)
        self._store = store
        self._threads: dict[str, SavedThread] = {}
        self._loop = asyncio.new_event_loop()  # writes go on here, from whatever loop or thread
        self._worker = threading.Thread(
            target=self._loop.run_forever, name="langgraph saver", daemon=True
        )
        self._worker.start()

    async def aclose(self) -> None:
        """Let other writers have the threads; the saver cannot be used any more."""
        await self._aside(self._let_go())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._worker.join)
        self._loop.close()

    async def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something on the saver's own event loop."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _let_go(self) -> None:
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            if thread.log is not None:
                await thread.log.close("waiting")

    async def aget_tuple(self, config: Config) -> Any:
        """The checkpoint that a config names, or the last of its thread."""
        asked = config["configurable"]
        namespace = asked.get("checkpoint_ns", "")
        thread = self._read(asked["thread_id"])
        checkpoint_id = asked.get("checkpoint_id") or thread.latest(namespace)
        if checkpoint_id is None or (namespace, checkpoint_id) not in thread.checkpoints:
            return None
        return self._tuple(thread, asked["thread_id"], namespace, checkpoint_id)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Any]:
        """The checkpoints of a thread, or of all, the last ones first."""
        for found in self._list(config, filter, before, limit):
            yield found

    def _list(
        self,
        config: Config | None,
        metadata: Mapping[str, Any] | None,
        before: Config | None,
        limit: int | None,
    ) -> Iterator[Any]:
        asked: dict[str, Any] = config["configurable"] if config else {}
        limit_id = before["configurable"].get("checkpoint_id") if before else None
        names = [asked["thread_id"]] if config else self._names()
        num = 0
        for name in names:
            thread = self._read(name)
            for namespace, checkpoint_id in sorted(
                thread.checkpoints, key=lambda key: key[1], reverse=True
            ):
                if num == limit:
                    return
                if asked.get("checkpoint_ns", namespace) != namespace:
                    continue
                if (asked.get("checkpoint_id") or checkpoint_id) != checkpoint_id:
                    continue
                if limit_id is not None and checkpoint_id >= limit_id:
                    continue
                found = self._tuple(thread, name, namespace, checkpoint_id)
                if all(found.metadata.get(k) == v for k, v in (metadata or {}).items()):
                    num += 1
                    yield found

    def _names(self) -> list[str]:
        return [
            info.name.removeprefix(_PREFIX)
            for info in self._store.runs()
            if info.name.startswith(_PREFIX)
        ]

    def _read(self, name: str) -> SavedThread:
        """A thread as it is recorded, without becoming its writer."""
        if name in self._threads:
            return self._threads[name]
        thread = SavedThread()
        if name in self._names():
            for row in self._store.rows(_PREFIX + name):
                thread.add(row)
        return thread

    def _tuple(self, thread: SavedThread, name: str, namespace: str, checkpoint_id: str) -> Any:
        entry = thread.checkpoints[namespace, checkpoint_id]
        checkpoint = self._loads(entry["checkpoint"])
        blobs = {
            channel: thread.blobs.get((namespace, channel, version), EMPTY)
            for channel, version in checkpoint["channel_versions"].items()
        }
        values = {c: self._loads(blob) for c, blob in blobs.items() if blob[0] != "empty"}
        writes = thread.writes.get((namespace, checkpoint_id), {})
        ordered = sorted(writes.values(), key=lambda w: (w["path"], w["task"], w["idx"]))
        parent = entry["parent"]
        return _base.CheckpointTuple(
            config=_config(name, namespace, checkpoint_id),
            checkpoint={**checkpoint, "channel_values": values},
            metadata=self._loads(entry["metadata"]),
            parent_config=_config(name, namespace, parent) if parent else None,
            pending_writes=[(w["task"], w["channel"], self._loads(w["value"])) for w in ordered],
        )

    async def aput(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """Record a checkpoint and the channel values that are new with it."""
        asked = config["configurable"]
        namespace = asked.get("checkpoint_ns", "")
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        values = checkpoint["channel_values"]
        rows = [
            make_row(
                namespace,
                "blob",
                channel=channel,
                version=version,
                value=self._dumps(values[channel]) if channel in values else EMPTY,
            )
            for channel, version in new_versions.items()
        ]
        whole = _base.get_checkpoint_metadata(config, metadata)
        rows.append(
            make_row(
                namespace,
                "checkpoint",
                id=checkpoint["id"],
                parent=asked.get("checkpoint_id"),
                checkpoint=self._dumps(rest),
                metadata=self._dumps(whole),
            )
        )
        await self._add(asked["thread_id"], rows)
        return _config(asked["thread_id"], namespace, checkpoint["id"])

    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Record what a task wrote; what is there already of the same place stays."""
        asked = config["configurable"]
        namespace, checkpoint_id = asked.get("checkpoint_ns", ""), asked["checkpoint_id"]
        known = self._read(asked["thread_id"]).writes.get((namespace, checkpoint_id), {})
        rows: list[Row] = []
        for number, (channel, value) in enumerate(writes):
            idx = _base.WRITES_IDX_MAP.get(channel, number)
            if idx < 0 or (task_id, idx) not in known:
                rows.append(
                    make_row(
                        namespace,
                        "write",
                        checkpoint=checkpoint_id,
                        task=task_id,
                        idx=idx,
                        channel=channel,
                        value=self._dumps(value),
                        path=task_path,
                    )
                )
        await self._add(asked["thread_id"], rows)

    async def _add(self, name: str, rows: Sequence[Row]) -> None:
        await self._aside(self._append(name, rows))

    async def _append(self, name: str, rows: Iterable[Row]) -> None:
        """Add rows to a thread, safely; become its writer first."""
        thread = self._threads.setdefault(name, SavedThread())
        async with thread.lock:
            if thread.log is None:
                thread.log = await self._open(name, thread)
            for row in rows:
                thread.log.append(row)
                thread.add(row)
            await thread.log.flush()

    async def _open(self, name: str, thread: SavedThread) -> RunLog:
        try:
            log = await self._store.open(_PREFIX + name)
        except BaseException:
            self._threads.pop(name, None)
            raise
        for row in log.rows:
            thread.add(row)
        return log

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget a thread."""
        await self._aside(self._delete(thread_id))

    async def _delete(self, name: str) -> None:
        thread = self._threads.pop(name, None)
        if thread is not None and thread.log is not None:
            await thread.log.close("done")
        if name in self._names():
            self._store.delete(_PREFIX + name)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Forget the checkpoints that some runs of LangGraph made, in all threads."""
        for name in self._names():
            thread = self._read(name)
            await self._forget(
                name,
                [
                    key
                    for key, entry in thread.checkpoints.items()
                    if self._loads(entry["metadata"]).get("run_id") in run_ids
                ],
            )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread under another name."""
        if source_thread_id not in self._names():
            return
        await self._add(target_thread_id, self._store.rows(_PREFIX + source_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Forget all but the last checkpoint of each namespace, or (`delete`) whole threads.

        A namespace with a channel that is made of its history (a `DeltaChannel`) keeps all.

        Raises:
            GraphError: There is no such strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise GraphError(f"strategy {strategy!r} is none; use keep_latest or delete")
        for name in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(name)
                continue
            thread = self._read(name)
            kept = {
                (ns, thread.latest(ns)) for ns in {namespace for namespace, _ in thread.checkpoints}
            }
            histories = {ns for ns, last in kept if self._needs_history(thread, ns, last)}
            await self._forget(
                name,
                [key for key in thread.checkpoints if key not in kept and key[0] not in histories],
            )

    def _needs_history(
        self, thread: SavedThread, namespace: str, checkpoint_id: str | None
    ) -> bool:
        entry = thread.checkpoints[namespace, checkpoint_id or ""]
        versions = self._loads(entry["checkpoint"])["channel_versions"]
        return any((namespace, c, v) not in thread.blobs for c, v in versions.items())

    async def _forget(self, name: str, keys: Sequence[tuple[str, str]]) -> None:
        if keys:
            await self._add(name, [make_row(ns, "forget", id=number) for ns, number in keys])

    def get_tuple(self, config: Config) -> Any:
        """As `aget_tuple`."""
        return run_blocking(self.aget_tuple(config))

    def list(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[Any]:
        """As `alist`."""
        yield from self._list(config, filter, before, limit)

    def put(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """As `aput`."""
        return run_blocking(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `aput_writes`."""
        run_blocking(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`."""
        run_blocking(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `adelete_for_runs`."""
        run_blocking(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `acopy_thread`."""
        run_blocking(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `aprune`."""
        run_blocking(self.aprune(thread_ids, strategy=strategy))

    def close(self) -> None:
        """As `aclose`."""
        run_blocking(self.aclose())

    def _dumps(self, value: object) -> builtins.list[str]:
        kind, data = self.serde.dumps_typed(value)
        return [kind, b64encode(data).decode("ascii")]

    def _loads(self, stored: Any) -> Any:
        kind, data = stored
        return self.serde.loads_typed((kind, b64decode(data)))


def _config(thread: str, namespace: str, checkpoint_id: str) -> Config:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
