"""Create arrays of rows in the layout of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reput.kernels.llvm import INTERPRETED


def new_rows(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Create `count` uninitialised rows of a structured dtype.

    Kernels access the fields of a row as attributes. With NUMBA_DISABLE_JIT=1, this requires a record array.
    """
    array = np.empty(count, dtype)
    return array.view(np.recarray) if INTERPRETED else array
