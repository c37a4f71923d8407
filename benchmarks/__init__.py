"""Measure reput: `python -m benchmarks` prints the figures of docs/performance.md and docs/engineering/."""
