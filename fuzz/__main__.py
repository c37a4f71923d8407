"""Run targets one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from fuzz import INPUT_SECONDS, TARGETS

FOLDER = Path(__file__).parent
_MEMORY_MB = 1024
_RAM = Path("/dev/shm")


def main() -> int:
    options = _options()
    targets: list[str] = options.targets or list(TARGETS)
    if options.replay is not None:
        if len(targets) != 1:
            sys.exit("fuzz: --replay needs the one TARGET that the file is for")
        return _start(targets[0], "--replay", options.replay)
    if find_spec("atheris") is None:
        sys.exit("fuzz: atheris is not installed; `make fuzz` does that (Linux only)")
    return max([_fuzz(target, options.seconds) for target in targets])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description="Feed mutated stores to the readers. Exits with 0 when nothing was found.",
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET",
                        help=f"{', '.join(TARGETS)}; all of them by default")  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=int,
        default=60,
        metavar="N",
        help="time for each target (60 s by default)",
    )
    parser.add_argument(
        "--replay", metavar="FILE", help="run TARGET on one input, such as a crash file"
    )
    options = parser.parse_args()
    for target in options.targets:
        if target not in TARGETS:
            parser.error(f"no target has the name {target!r}; the targets are {', '.join(TARGETS)}")
    return options


def _fuzz(target: str, seconds: int) -> int:
    corpus = FOLDER / "corpus" / target
    module = import_module(f"fuzz.{target}")
    _write_seeds(module.Target.seeds(), corpus)
    prefix = f"crash-{target}-"
    before = set(FOLDER.glob(f"{prefix}*"))
    code = _start(
        target, str(corpus), f"-max_total_time={seconds}", f"-max_len={module.Target.MAX_BYTES}",
        f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={_MEMORY_MB}",
        f"-artifact_prefix={FOLDER / prefix}", f"-dict={FOLDER / 'log.dict'}",
        "-reload=0", "-verbosity=0", "-print_final_stats=1",
    )  # fmt: skip
    for path in sorted(set(FOLDER.glob(f"{prefix}*")) - before):
        print(f"fuzz {target}: FOUND {path}")
        print(f"fuzz {target}: again with: python -m fuzz {target} --replay {path}", flush=True)
    print(f"fuzz {target}: {'nothing found' if code == 0 else f'exit code {code}'}", flush=True)
    return int(code != 0)


def _write_seeds(seeds: list[bytes], corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


def _start(target: str, *arguments: str) -> int:
    """Run `fuzz.drive` with a temporary folder, which is in memory if possible. Return its exit code."""
    memory = _RAM if os.access(_RAM, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="reput-fuzz-", dir=memory) as folder:
        # Interpreted kernels are part of the coverage. They raise IndexError if they read outside of an array.
        environment = {
            **os.environ,
            "NUMBA_DISABLE_JIT": "1",
            "PYTHONWARNINGS": "ignore::RuntimeWarning",  # Some sums wrap on purpose.
            "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *sys.path]),
        }
        command = [sys.executable, "-m", "fuzz.drive", target, folder, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
