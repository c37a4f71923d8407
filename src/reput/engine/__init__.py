"""Write, rebuild, check and repair stores, and read their messages as tables."""
