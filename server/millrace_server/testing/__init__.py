"""Real brokers for tests: one, or a cluster, in the caller's event loop, in a thread, in processes.

    async with Broker() as broker:                  # in this loop, on a temporary directory
        async with Producer(broker.servers) as producer:
            ...

    with BrokerThread() as broker:                  # for synchronous code
        ...

    async with Cluster(3) as cluster:               # three brokers in this loop
        await cluster.kill(await cluster.leader_of("flights", 0))
        ...

    with ClusterThread(3) as cluster:               # for synchronous code
        ...

    async with ClusterProcesses(3) as cluster:      # three processes
        ...

Nothing is simulated: a broker listens on loopback ports, writes segment files and serves them with
sendfile. Data in a temporary directory is removed at the end; give `data` to keep it.
"""

from __future__ import annotations

from millrace_server.testing.broker import Broker
from millrace_server.testing.broker_thread import BrokerThread
from millrace_server.testing.cluster import Cluster
from millrace_server.testing.cluster_processes import ClusterProcesses
from millrace_server.testing.cluster_thread import ClusterThread

__all__ = ["Broker", "BrokerThread", "Cluster", "ClusterProcesses", "ClusterThread"]
