"""One small agent, written with three libraries: what a user writes for the same behaviour."""
