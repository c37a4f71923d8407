"""The parts of `reput.engine.check.run`: preparation, tasks, and the grouping of findings."""
