"""What is done to a store when it is opened to be written, so that its files agree."""
