"""SASL: what a client says to prove who it is, and what that proves (RFC 4422).

Each mechanism is one file. An exchange takes the client's messages one by one and names the user at
its end, or raises `SaslFailed`. Knows no dialect, no clock, no socket and no randomness: a nonce is
handed in, and what takes long is a call that the caller makes in a worker thread.
"""
