"""Members of HDF5 files that lie in the same file: a link could lead anywhere."""

from __future__ import annotations

from typing import Any

from winnow.errors import BadInput


def hard_linked(group: Any, name: str, where: str) -> Any:
    """A member of an HDF5 group that lies in the same file."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise BadInput(f"{where}: has no {name}; found: {', '.join(group)}")
    if not isinstance(link, h5py.HardLink):
        raise BadInput(f"{where}: {name} is a link; winnow reads one file only: copy the data into it")
    return group[name]
