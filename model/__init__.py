"""The diffusion language model: network, constraints, sampler, engine, training."""
