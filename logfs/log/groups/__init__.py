"""Consumer groups: the positions that groups have committed, as Kafka keeps them.

They are ordinary records of the compacted topic ``__consumer_offsets``, so a broker that opens the
directory finds them, and logfs finds what a broker has written::

    coding    keys and values of these records
    table     what is committed now, kept up to date from the logs of the topic
    removal   positions that have expired, or whose topic was deleted: tombstones

A group of logfs is what Kafka calls a simple consumer group: it has positions and no members.
"""
