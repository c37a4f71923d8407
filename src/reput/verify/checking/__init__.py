"""The parts of `reput.verify.check`: preparation, tasks, and the grouping of findings."""
