"""What a mount can be watched by: metrics, and the endpoint that they are read from.

    family       a metric and its values, as data
    logs         those of partitions, topics and of what is done to them
    mounts       those of the mount: requests, open files, threads, the disk
    facts        where all of them come from, and the answers to the control socket
    exposition   the Prometheus text; the only module that knows prometheus_client
    address      where it is read: the mount option ``metrics``
    endpoint     the server there

Nothing is collected before somebody asks; then it is read from what the parts of a mount know, in
the thread of whoever asks.
"""
