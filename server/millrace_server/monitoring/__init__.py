"""What tools that watch a broker ask over HTTP: its metrics and its health.

    series            PURE: which samples of the registry become time series
    exposition        series as Prometheus's text, or as OpenMetrics
    http_connection   one request of a connection, within bounds
    server            the listener and its paths
    extra             the way here: the libraries are imported if `metrics_listen` is set

Keeps no value: each is read from the registry when it is asked for. The libraries come with the
extra `metrics`; only `exposition`, `http_connection` and `server` import them.
"""
