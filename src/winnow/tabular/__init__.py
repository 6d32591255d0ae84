"""Grids small enough that every answer is exact: the rooms, data from them, exact weights, and what weights are worth.

`winnow.tabular.fourrooms` is the experiment made of these; the weighters' tests judge the learned weights by them.
"""
