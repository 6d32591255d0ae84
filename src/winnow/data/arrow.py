"""Columns of an Arrow table as arrays: numbers, text, and lists that are all equally long."""

from __future__ import annotations

from typing import Any

import numpy as np

from winnow.errors import BadInput


def arrow_array(column: Any, name: str, where: str) -> np.ndarray:
    """A column of numbers, or of lists that are all equally long, as an array."""
    from pyarrow import types

    column = column.combine_chunks()
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if column.null_count and (types.is_integer(column.type) or types.is_floating(column.type)):
        return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise BadInput(f"{where}: {name}, row {row}: is empty; fill it in or remove the row")
    if types.is_dictionary(column.type):
        labels = column.dictionary.to_numpy(zero_copy_only=False)
        return labels[column.indices.to_numpy()]
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        return column.to_numpy(zero_copy_only=False)
    fixed = types.is_fixed_size_list(column.type)
    length = np.full(len(column), column.type.list_size) if fixed else column.value_lengths().to_numpy()
    odd = length != (length[0] if len(length) else 0)
    if odd.any():
        row = int(np.argmax(odd))
        raise BadInput(f"{where}: {name}, row {row}: has {length[row]} numbers, row 0 has {length[0]}; they must agree")
    inside = column.flatten()
    if inside.null_count or types.is_nested(inside.type):
        raise BadInput(f"{where}: {name} must be a plain list of numbers in each row, none of them empty")
    return inside.to_numpy(zero_copy_only=False).reshape(len(column), -1)
