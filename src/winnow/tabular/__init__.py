"""Grids small enough for exact answers: the rooms, data from them, exact weights, and what weights are worth.

`winnow.tabular.fourrooms` is the experiment on them; tests of the weighters compare learned weights with the exact
ones.
"""
