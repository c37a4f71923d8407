"""RocketMQ's remoting protocol: requests of stock clients and mqadmin, answers of a name server and a broker.

`frames`, `headers`, `commands` and `session` turn bytes into requests and answers into bytes, and know no sockets. A
room of handlers answers the requests of one store. `server` is the one module with sockets.
"""
