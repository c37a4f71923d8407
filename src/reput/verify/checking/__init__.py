"""The parts of `reput.verify.check`: what it looks at first, its tasks, and how it counts."""
