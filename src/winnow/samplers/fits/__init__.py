"""Networks that samplers fit to a dataset before training. Samplers need jax only here, and import it late."""
