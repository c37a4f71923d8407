"""Examine a store: inspection, figures, the life of a message, differences between stores. Other rooms use `api`."""
