"""Look up many keys at once.

First, the keys are staged: they are written, in parts of some hundred thousand rows, to files that every task can read.
Then IndexFiles and scans of the log yield candidates. A candidate is a key and a physical offset at which a message
with this key may be. Candidates are staged in runs, which are files sorted by physical offset. Finally, the log is read
in order, and a candidate whose record has the key becomes a match.

As in `reput.engine.rebuild`, functions over small picklable tasks do the work. The caller's runner executes them.
"""
