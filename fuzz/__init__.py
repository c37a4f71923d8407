"""Mutated stores for the readers: coverage-guided fuzzing with atheris (Linux). `python -m fuzz --help`.

Each target is a module with a class `Target(folder)`: `run(data)` makes files of the bytes in `folder` and reads
them in every way there is; `seeds()` are inputs to begin with, `MAX_BYTES` the longest one. `ReputError` is an
answer, everything else is a finding, as is an input that takes too long or too much memory.
"""

TARGETS = ("scan", "rebuild", "index", "queue", "query", "commands", "remoting", "five", "config")
INPUT_SECONDS = 20  # kernels are interpreted, the machine may be busy: more than this is a hang
