"""Hold one feature in each folder. A wing uses another one only where the contract in pyproject.toml lists it."""
