"""Datasets: rows and episodes, where they come from, how they are mixed, how imbalanced they are.

Nothing in this package needs jax, a sampler, a weighter or an algorithm.
"""
