"""Serve RocketMQ's remoting protocol: answer the requests of clients and mqadmin, as a name server and a broker do.

`frames`, `headers`, `commands` and `session` convert received bytes to requests, and answers to bytes. They have no
sockets. `requests` is the register of requests, and handlers answer those of one store. `server` and `connection` have
the sockets.

One event loop serves all connections. Slow answers are computed in threads (`threads`).
"""
