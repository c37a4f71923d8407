"""RocketMQ's remoting protocol: requests of stock clients and mqadmin, answers of a name server and a broker.

`frames`, `headers`, `commands` and `session` convert bytes to requests and answers to bytes, without sockets. Handlers
answer the requests of one store. `listening`, `connection` and `workers` have the sockets.

One event loop serves all connections. Slow answers are computed in threads (`threads`).
"""
