"""Kafka clusters: logfs as a client of brokers.

Modules, lowest first; blocking sockets and threads, no trio::

    loading     kafka-python without its clients; done before any other module is loaded
    settings    how a cluster is reached: the names of librdkafka, from files and options
    answers     the error for an answer that is none; pure
    fetching    Fetch requests and answers, batches as they are; pure
    wire        one connection to one broker: TLS, SASL, versions, frames
    cluster     brokers, topics, leaders; requests that go to the right broker
    copying     what mirrors and forwards have in common
    selection   which topics a mirror has, under which names and with which settings; pure
    targets     where a mirror writes: a store, or the daemon that owns it
    mirrored    one partition of a mirror, and what a fetch answer does to it
    fetcher     the thread that fetches from one broker
    mirroring   all of a mirror: topics, leaders, threads
    producing   Produce requests, and how far a producer has got
    shipping    from stored batches to those that are sent; pure
    resuming    where a forward continues: how far its destination has got
    sending     batches on their way: under way, acknowledged, refused
    forwarded   one partition that is forwarded
    forwarding  all of a forward: partitions, threads

What stays the same over all uses of kafka-python is here: ``kafka.protocol`` for the encoding of
all messages but Fetch answers, ``kafka.net.sasl`` for what is said at a login, and
``kafka.errors`` for the names of error codes. Its connections are not used: they copy what they
receive four times.
"""

from logfs.kafka.loading import load_on_use

load_on_use()
