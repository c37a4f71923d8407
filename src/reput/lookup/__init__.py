"""Looking up many keys at once: staged keys, candidates from IndexFiles and scans, records read in order, answers.

Plain functions over small picklable tasks, as in `reput.pipeline`; the caller runs them.
"""
