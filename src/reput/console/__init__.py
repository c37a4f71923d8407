"""Provide the web console: an ASGI app with server-rendered pages and a JSON API over stores."""
