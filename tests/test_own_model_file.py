"""A user's own files named like our folders are left alone, and find their own code."""

import subprocess
import sys
from pathlib import Path


def test_a_users_own_model_and_retrieval_break_nothing(tmp_path: Path) -> None:
    """A script beside its own model.py and retrieval/ imports both its files and agentloop."""
    (tmp_path / "model.py").write_text("WHOSE = 'the user'\n")
    (tmp_path / "retrieval").mkdir()
    (tmp_path / "retrieval" / "__init__.py").write_text("WHOSE = 'the user'\n")
    (tmp_path / "script.py").write_text(
        "import model, retrieval\n"
        "import agentloop\n"
        "from agentloop.model.constraint import JsonSchema\n"
        "from agentloop.retrieval import Index\n"
        "assert model.WHOSE == retrieval.WHOSE == 'the user'\n"
        "assert JsonSchema({'type': 'integer'}).accepts('3')\n"
        "print(Index.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("agentloop.retrieval")


def test_importing_agentloop_is_light() -> None:
    """`import agentloop` loads neither torch nor faiss nor transformers."""
    code = (
        "import sys, agentloop, agentloop.retrieval\n"
        "heavy = {'torch', 'faiss', 'transformers', 'sentence_transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
