"""Grids small enough for exact answers: the rooms, data from them, exact weights, and what weights are worth.

`winnow.tabular.fourrooms` is the experiment of `winnow fourrooms`. `winnow.tabular.small_rooms` trains the weighters
themselves on such a grid, for their tests and for experiments/tabular.
"""
