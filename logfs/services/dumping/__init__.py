"""Printing files of a log as kafka-dump-log prints them, line for line.

    file                     what is printed, a line each
    .log                     every batch, its CRC checked; with records, every record after it
    .checkpoint              the same, of a KRaft snapshot
    .index                   every entry; that it points to the batch it names is checked
    .timeindex               every entry; its batch and its timestamp are checked
    .snapshot                every producer
    .txnindex                every aborted transaction
    leader-epoch-checkpoint  every leader epoch; Kafka's tool cannot read it
    offset checkpoints       every partition's offset; Kafka's tool cannot read them

    Dumping <path>
    Log starting offset: <base offset by the file's name>
    baseOffset: <n> lastOffset: <n> count: <n> baseSequence: <n> lastSequence: <n> producerId: <n>
        producerEpoch: <n> partitionLeaderEpoch: <n> isTransactional: <b> isControl: <b>
        deleteHorizonMs: OptionalLong.empty position: <n> CreateTime: <ms> size: <n> magic: 2
        compresscodec: <name> crc: <n> isvalid: <b>                                  (one line)
    | offset: <n> CreateTime: <ms> keySize: <n> valueSize: <n> sequence: <n> headerKeys: [<k>,<k>]
        key: <text> payload: <text>                                                  (one line)
    Found <n> invalid bytes at the end of <file name>

A null key or value has size -1 and is not printed. Bytes are decoded as UTF-8 and printed like a
Java string, line ends unchanged.

    source      the files, and their batches through a window
    schemas     Kafka's own messages; messages: from their bytes to JSON
    decoders    the records that Kafka itself writes
    logs        prints batches; legacy: of formats v0 and v1; indexes: both indexes
    dump        prints all other files
    output      findings, which go to stderr after all files

Files are only read, without any lock: they may belong to a running broker.

Source: Kafka DumpLogSegments.
"""
