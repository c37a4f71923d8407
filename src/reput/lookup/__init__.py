"""Look up many keys at once. Keys are staged, candidates come from IndexFiles and scans, and records are read in order.

As in `reput.pipeline`, functions over small picklable tasks do the work. The caller's runner executes them.
"""
