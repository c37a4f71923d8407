"""Archives on object storage: written, verified, restored."""
