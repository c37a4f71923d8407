"""Looking at what a store's files hold, and whether they hold together."""
