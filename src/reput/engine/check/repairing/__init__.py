"""The parts of `reput repair`: the plan, the new state beside the store, the swap, and the undo."""
