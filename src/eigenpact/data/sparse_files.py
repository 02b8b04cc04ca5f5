"""Sparse matrices as ``scipy.sparse.save_npz`` writes them, from files that anybody may have written.

scipy trusts its arrays: an index out of range has it write outside of them when it converts a matrix.  So they are checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InputError
from .array_files import Archive

LONGEST = 1 << 24
"""Rows and columns of a matrix may be as many, or as many as its file has entries: vectors of that length will be made."""

COMPRESSED = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "bsr": sparse.bsr_matrix}


def read_sparse(archive: Archive) -> Any:
    """The matrix (n_rows x n_features) as CSR; what does not fit together is an InputError."""
    kind, shape = archive.read("format").ravel().tolist(), _whole(archive, "shape").ravel().tolist()
    form = kind[0].decode("latin1") if kind and isinstance(kind[0], bytes) else kind[0] if kind else ""
    data = archive.read("data")
    if data.dtype.kind not in "biufc":
        raise InputError(f"its entries are of dtype {data.dtype}")
    if len(shape) != 2 or not all(0 <= n <= max(LONGEST, data.size) for n in shape):
        raise InputError(f"its shape is {shape[:5]}; allowed are two numbers up to {max(LONGEST, data.size)}")
    try:
        matrix = _put_together(archive, str(form), data, tuple(shape))
        matrix.sum_duplicates()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise error if isinstance(error, InputError) else InputError(f"its parts do not fit together: {error}") from error
    return matrix


def _put_together(archive: Archive, form: str, data: NDArray[Any], shape: tuple[int, ...]) -> Any:
    if form in COMPRESSED:
        matrix = COMPRESSED[form]((data, _whole(archive, "indices"), _whole(archive, "indptr")), shape=shape)
        matrix.check_format(full_check=True)
        return matrix.tocsr()
    if form == "coo":
        return sparse.coo_matrix((data, (_whole(archive, "row"), _whole(archive, "col"))), shape=shape).tocsr()
    if form == "dia":
        return sparse.dia_matrix((data, _whole(archive, "offsets")), shape=shape).tocsr()
    raise InputError(f"its format is {form[:20]!r}; allowed are {', '.join((*COMPRESSED, 'coo', 'dia'))}")


def _whole(archive: Archive, name: str) -> NDArray[np.int64]:
    numbers = archive.read(name)
    if numbers.dtype.kind not in "iu":
        raise InputError(f"its array {name!r} is of dtype {numbers.dtype}, not of whole numbers")
    return numbers
