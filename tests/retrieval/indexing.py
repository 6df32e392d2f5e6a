"""What tests of an index share: documents, and an embedder that counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from agentloop.retrieval import HashingEmbedder
from agentloop.retrieval.embedder import Vectors

MakePdf = Callable[..., bytes]


BIRDS = "# Birds\n\nThe kestrel hovers over the meadow.\n\n## Owls\n\nOwls hunt at night.\n"


SHIPS = "# Ships\n\nThe frigate left the harbour at dawn.\n"


def old(path: Path) -> None:
    """Make a file look as if it was last changed long ago: its time alone then tells."""
    os.utime(path, ns=(10**18, 10**18))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)


class CountingEmbedder(HashingEmbedder):
    """Counts the passages it embeds."""

    num_passages = 0

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.num_passages += len(texts)
        return super().embed_passages(texts)
