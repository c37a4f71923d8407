"""Stores in a browser and over HTTP: an ASGI app of pages rendered here, and a JSON API beside them."""
