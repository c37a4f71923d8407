"""What other projects may use to test with: a disk that forgets."""
