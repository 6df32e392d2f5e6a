"""Local documents: loaders, chunks, store, hybrid search.

Importing this loads neither torch nor faiss; an index loads them when it first needs them.
"""

from agentloop.retrieval.document import STATUSES, Block, FileStatus, ParsedDocument
from agentloop.retrieval.embedder import Embedder, SentenceEmbedder
from agentloop.retrieval.index import Index, IndexStats
from agentloop.retrieval.loaders import Limits
from agentloop.retrieval.search import FUSIONS, MODES, Fusion, Hit, Mode
from agentloop.retrieval.snapshot import DocumentInfo
from agentloop.retrieval.sync import FileProblem, SyncReport

__all__ = [
    "FUSIONS",
    "MODES",
    "STATUSES",
    "Block",
    "DocumentInfo",
    "Embedder",
    "FileProblem",
    "FileStatus",
    "Fusion",
    "Hit",
    "Index",
    "IndexStats",
    "Limits",
    "Mode",
    "ParsedDocument",
    "SentenceEmbedder",
    "SyncReport",
]
