"""How the cost of each operation grows with each size that it depends on, by counts that no clock decides."""
