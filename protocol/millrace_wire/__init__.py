"""One wire connection for both sides: for a client of a broker, and for a broker that calls one.

A tour, from the bytes up. All but the last two are pure: no asyncio, no socket, no clock.

| module | what it is |
|---|---|
| `frame_reader` | cuts received bytes into frames; a broker's connections use it too |
| `frame_buffers` | memory for large frames that is used again |
| `request_pipeline` | correlation ids, limits, the requests in flight and their deadlines |
| `errors` | why a request has no response |
| `socket_options` | options of a socket that spare calls of the kernel |
| `connection` | the asyncio shell: `connect`, then `Connection.call` |
"""
