"""Where a store's indexes differ from its log, and what is done about it when the store is opened to be written."""
