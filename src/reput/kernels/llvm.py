"""Provide numba and LLVM for the kernels that need them, or stand-ins if numba is not installed.

INTERPRETED is true if kernels run as plain Python: numba is missing, or NUMBA_DISABLE_JIT is set. The stand-ins make
modules importable, but cannot generate machine code. Plain Python needs no machine code.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

HAS_NUMBA = find_spec("numba") is not None
if TYPE_CHECKING or HAS_NUMBA:
    from llvmlite import binding, ir
    from numba import config, types
    from numba.core import cgutils
    from numba.core.imputils import impl_ret_untracked
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

    INTERPRETED = bool(vars(config)["DISABLE_JIT"])
else:
    INTERPRETED = True
    binding = cgutils = impl_ret_untracked = ir = make_array = types = None

    def intrinsic(function: Any) -> Any:
        return function


__all__ = [
    "HAS_NUMBA", "INTERPRETED", "binding", "cgutils", "impl_ret_untracked", "intrinsic", "ir", "make_array", "types",
]  # fmt: skip
