"""Send reput's own code to the executors of a cluster.

The code is added as an archive with the name `reput`. Spark unpacks this archive into a folder on the Python path of
the workers. Unlike modules in a zip file, this folder includes compiled kernels: those in the driver's `__pycache__`,
and those of the package. Kernels that an executor must compile are cached in the folder, too. The folder belongs to the
executor and is deleted with it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from reput.errors import SparkJobError
from reput.io import Scratch
from reput.spark.descriptions import ASK_EXECUTORS, described
from reput.spark.errors import why_unfit
from reput.spark.session import is_local
from reput.spark.workers import use_this_python

_COMPILED_KERNELS = (".nbi", ".nbc")
DEPENDENCIES = ("numba", "numpy")
ARROW_DEPENDENCIES = (*DEPENDENCIES, "pyarrow")
_SHIPPED = "REPUT_SHIPPED"


def ship_code(sc: SparkContext, needs: tuple[str, ...] = DEPENDENCIES) -> bool:
    """Make the executors run this process's version of reput. Return whether the code had to be sent.

    With a local master, nothing is sent. If the workers' Python lacks reput, the workers use the Python of this process
    instead, unless the user chose the workers' Python.

    In a cluster, nothing is sent if the executors have the same source code of reput installed as this process. All
    executors are assumed to be identical. The modules in `needs` must be installed on the executors.

    Raises:
        SparkJobError: The executors lack one of these modules, or a local master has no Python with reput to use.
    """
    if is_local(str(sc.master)):
        use_this_python(sc)
        return False
    package = Path(__file__).parents[1]
    digest = digest_function()(package)
    if sc.environment.get(_SHIPPED) == digest:
        return False
    try:
        with described(sc, ASK_EXECUTORS):
            answers = _ask_executors(sc, needs)
    except (PySparkException, Py4JError, OSError) as error:
        raise why_unfit(error) or SparkJobError(f"Spark job failed: {error}") from error
    check_nothing_lacks(f"the executors of {sc.master}", (names for _, names in answers))
    if {theirs for theirs, _ in answers} == {digest}:
        return False
    # Executors fetch the zip file of reput's code from this folder while Spark runs.
    folder = Scratch.folder_until_exit("reput-ship-")
    archive = Path(folder, f"reput-{digest[:16]}.zip")
    pack(package, archive)
    sc.addArchive(f"{archive}#reput")
    # The old workers may have imported another version of reput. Spark starts new workers if the environment variables
    # have changed.
    sc.environment[_SHIPPED] = digest
    return True


def check_nothing_lacks(whose: str, missing: Iterable[Sequence[str]]) -> None:
    """Raise SparkJobError if an executor lacks a module."""
    if names := sorted({name for names_of_worker in missing for name in names_of_worker}):
        raise SparkJobError(
            f"{whose} lack {', '.join(names)}; install these packages there, for Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}"
        )


def _ask_executors(sc: SparkContext, needs: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return, for each of several tasks, the digest of the installed reput ("" if missing) and the missing modules."""
    digest_of = digest_function()

    def look(_: int) -> tuple[str, list[str]]:
        # `find_spec` finds reput without importing it.
        spec = importlib.util.find_spec("reput")
        digest = digest_of(Path(spec.origin).parent) if spec and spec.origin else ""
        return digest, [name for name in needs if importlib.util.find_spec(name) is None]

    # With one task per core, the tasks probably reach every executor.
    tasks = max(2, sc.defaultParallelism)
    return sc.parallelize(range(tasks), tasks).map(look).collect()


def digest_function() -> Callable[[Path], str]:
    """Return a function that digests a package's source.

    The function is a closure, which Spark sends by value: the executors may lack reput.
    """
    compiled = _COMPILED_KERNELS

    def digest(package: Path) -> str:
        state = hashlib.sha256()
        for path in sorted(package.rglob("*")):
            is_compiled = "__pycache__" in path.parts or path.suffix in compiled
            if path.is_file() and not is_compiled:
                content = path.read_bytes()
                state.update(f"{path.relative_to(package)}\0{len(content)}\0".encode())
                state.update(content)
        return state.hexdigest()

    return digest


def pack(package: Path, archive: Path) -> None:
    """Write a package as an archive, with its compiled kernels."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            if "__pycache__" not in path.parts or path.suffix in _COMPILED_KERNELS:
                file.write(path, path.relative_to(package))
