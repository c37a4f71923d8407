"""Fuzz the readers with mutated stores, guided by coverage, with atheris (Linux). See `python -m fuzz --help`.

Each target is a module with a class `Target(folder)`. Its `run(data)` makes files of the bytes in `folder`, and reads
them in every way there is. `seeds()` are inputs to begin with, and `MAX_BYTES` is the longest input. A `ReputError` is
a valid answer. Any other error is a finding, and so is an input that takes too much time or memory.
"""

TARGETS = ("scan", "rebuild", "index", "queue", "query", "commands", "remoting", "five", "config")
# Kernels are interpreted and the machine may be busy, so only more than this is a hang.
INPUT_SECONDS = 20
