"""Local documents: loaders, chunks, store, hybrid search.

Importing this loads neither torch nor faiss nor numpy: a name is imported when it is first used,
and an index loads its models when it first needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.retrieval.consistency import FsckReport
    from agentloop.retrieval.document import STATUSES, Block, FileStatus, ParsedDocument
    from agentloop.retrieval.embedder import Embedder, SentenceEmbedder
    from agentloop.retrieval.hashing import HashingEmbedder
    from agentloop.retrieval.index import Index, IndexStats
    from agentloop.retrieval.loaders import Limits
    from agentloop.retrieval.search import FUSIONS, MODES, Fusion, Hit, Mode
    from agentloop.retrieval.snapshot import DocumentInfo
    from agentloop.retrieval.sync import FileProblem, SyncReport

_NAMES = {  # module -> what it gives
    "consistency": ("FsckReport",),
    "document": ("STATUSES", "Block", "FileStatus", "ParsedDocument"),
    "embedder": ("Embedder", "SentenceEmbedder"),
    "hashing": ("HashingEmbedder",),
    "index": ("Index", "IndexStats"),
    "loaders": ("Limits",),
    "search": ("FUSIONS", "MODES", "Fusion", "Hit", "Mode"),
    "snapshot": ("DocumentInfo",),
    "sync": ("FileProblem", "SyncReport"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "FUSIONS",
    "MODES",
    "STATUSES",
    "Block",
    "DocumentInfo",
    "Embedder",
    "FileProblem",
    "FileStatus",
    "FsckReport",
    "Fusion",
    "HashingEmbedder",
    "Hit",
    "Index",
    "IndexStats",
    "Limits",
    "Mode",
    "ParsedDocument",
    "SentenceEmbedder",
    "SyncReport",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"agentloop.retrieval.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
