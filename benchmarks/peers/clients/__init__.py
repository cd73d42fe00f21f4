"""Client programs of the contestants, each round in a process of its own.

`client` says what a client is asked to do; every other module is one client library. A library is
imported by its own module alone, and only in the processes that run it.
"""
