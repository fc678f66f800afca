"""Packing: a sealed segment is written once more, with larger and compressed batches.

A program that writes line by line makes one batch a line: 61 bytes of header around a hundred of
text. With the topic setting ``logfs.sealed.compression.type`` each segment that is sealed and
durable is written again, once, by the same swap as in compaction. Offsets, timestamps, keys,
headers and positions stay as they are, and a Kafka broker can read the result.

    rewriting   one segment becomes its packed files
    packer      which segments are due; packing them in the background or on request

Not packed: segments of topics with ``cleanup.policy=compact`` (compaction rewrites them, and its
gaps need the batches as they are) and those that a broker wrote into a directory without a
its own configuration. Batches of producers and transactions are copied as they are.
"""
