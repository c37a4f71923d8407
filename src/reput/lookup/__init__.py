"""Looking up many keys at once: staged keys, candidates from IndexFiles and scans, records read in order, answers.

Plain functions over small picklable tasks, as in `reput.pipeline`; who runs them is the caller's affair.
"""
