"""Find how a store's indexes differ from its log, and correct them when the store is opened for writing."""
