"""Client programs under test, one round each, in processes of their own.

Every contestant does the same work: values of the same size without keys, the same batch size and
linger, acks=1, no compression, on uvloop where it is asyncio. A round is warmed up first, then
timed from the first record to the last ack, or from the first record received to the last.
"""
