"""RocketMQ's remoting protocol: what stock clients and mqadmin send, and what a name server and a broker answer.

`frames`, `headers`, `commands` and `session` turn bytes into requests and answers into bytes, and know no sockets. A
room of handlers answers the requests of one store. `server` is the one module with sockets.
"""
