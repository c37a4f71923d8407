"""What commands write as HTML: pages that need no network, no script and no other file."""
