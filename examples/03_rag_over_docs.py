"""Answers from a folder of documents, each with the sentence that shows it.

Run it with `python examples/03_rag_over_docs.py [FOLDER]`.

The documents are text, Markdown, HTML and PDF files; an answer is a span of one of their sentences,
and its citation is an exact place in the stored text.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from agentloop.demo import DOCUMENTS
from agentloop.model.lm import DiffusionLM
from agentloop.rag import answer
from agentloop.retrieval import Index

QUESTIONS = (
    "What is the highest point of Peru?",
    "When was Charon discovered?",
    "What is the national symbol of Iceland?",
)


async def main(folder: Path) -> None:
    """Index a folder and ask it some questions at once: they share the model's passes."""
    with (
        tempfile.TemporaryDirectory() as place,
        Index.open(Path(place) / "index") as index,
        DiffusionLM.load("default") as lm,
    ):
        report = index.sync(folder)
        print(f"{report.num_files} files, {report.num_chunks} passages, {report.seconds:.1f} s")
        found = await asyncio.gather(*(answer(index, lm, question) for question in QUESTIONS))
        for each in found:
            print(f"\n{each.question}\n  {each.text or 'not in the documents'}")
            for citation in each.citations:
                stored = index.text(citation.document_id).encode()
                quote = stored[citation.start_byte : citation.end_byte].decode()
                print(f"  {citation.place}: {quote!r}")
            print(f"  {each.num_steps} steps, {1000 * each.total_s:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS))
