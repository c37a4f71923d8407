"""Show stores in a browser and over HTTP: an ASGI app with server-rendered pages and a JSON API."""
