"""Measurements: `python -m benchmarks` prints every figure that docs/performance.md quotes."""
