"""Makes `recipes`, which is no part of the package, importable from the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
