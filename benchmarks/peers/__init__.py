"""millrace beside the servers that people compare it with: `python -m benchmarks --peers`.

A contestant is a server (`contestant`), with one file for each. A way is one client API of it
(`clients`). A workload (`workloads`) runs ways in turns and yields rows (`rows`). `goals` holds
what the first table of the page demands; `page` and `plots` write the page from rows alone.
"""
