"""Exact constraints on a canvas: automata, their lift to tokens, inference on them."""
