"""The metrics of a mount, and the HTTP endpoint that serves them.

    family       a metric and its values, as data
    noted        metrics of what another process notes of partitions
    mirrors      the metrics of partitions that are mirrors
    forwards     the metrics of partitions that are forwarded
    remote       the metrics of tiered storage
    topicquotas  the metrics of topics with quotas
    groups       the metrics of consumer groups
    users        the metrics of users with limits
    logs         the metrics of partitions and topics
    mounts       the metrics of the mount (requests, open files, threads, disk), and all of them
    exposition   the Prometheus text; the only module that imports prometheus_client
    endpoint     the HTTP server
    listener     its socket, from start to stop; see the mount option ``metrics``

Nothing is collected before a client asks. It is read from the parts of the mount then, in the
thread that asks.
"""
