"""The console: a web page for operators of a cluster, served by a process that is a client."""
