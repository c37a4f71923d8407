"""Look up many keys at once: staged keys, candidates from IndexFiles and scans, records read in order, answers.

As in `reput.pipeline`, the work is done by functions over small picklable tasks, which the caller's runner executes.
"""
