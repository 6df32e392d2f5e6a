"""Write the trained average as the four-bit canvas weights that ship with the package.

python recipes/default_model/export.py                       # training/run -> model/weights
python recipes/default_model/export.py --to training/export  # elsewhere, to evaluate first
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from agentloop.model.base_weights import base_folder
from agentloop.model.checkpoint import load_network
from agentloop.model.default_weights import FOLDER, save_delta, trained_parts
from agentloop.model.tensors import load_tensors
from agentloop.model.training import read_step

CONSOLE = Console()


def main() -> None:
    """Quantise and write; prints sizes and errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", type=Path, default=Path("training/run"))
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument(
        "--weights", choices=("average", "master"), default="average", help="which of the two"
    )
    options = parser.parse_args()
    state = options.run / "state.safetensors"
    tensors = load_tensors(state)
    base = trained_parts(load_network(base_folder(CONSOLE.print)))
    trained = {name: tensors[f"{options.weights}.{name}"] for name in base}
    step = read_step(state)
    about = {"step": step, "weights": options.weights}
    sizes = save_delta(base, trained, tensors[f"{options.weights}.mask_row"], options.to, about)
    CONSOLE.print(f"step {step} -> {options.to}")
    CONSOLE.print_json(json.dumps(sizes))


if __name__ == "__main__":
    main()
