"""What the log derives, compared with what the index files of a store hold.

One engine for each policy: recovery stops at the first difference, check explains every one, a proof turns gaps into
covered ranges, repair plans from the explanation, diff compares two stores.
"""
