"""Weights and samplers for training loops that are not winnow's: `winnow.plug.torch` and `winnow.plug.d3rlpy`."""
