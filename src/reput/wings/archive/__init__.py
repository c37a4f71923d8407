"""Write, verify and restore archives of stores on object storage."""
