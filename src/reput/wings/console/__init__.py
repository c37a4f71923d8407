"""Provide the web console for stores: an ASGI app with server-rendered pages and a JSON API."""
