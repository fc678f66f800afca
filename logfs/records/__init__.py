r"""Bytes to records and back: pure, no files, no clock.

Python:

    record        one record
    layout        where the fields of a batch header are; legacy: messages of formats v0 and v1
    checksum      CRC-32C
    compression   the four codecs
    batch         whole batches to records and back
    encoded       what goes into the encoder, and what comes out of it
    produced      a batch that has a producer id
    columns       records as columns, in the memory layout of Arrow
    jsontext      JSON from a file, a peer or an option; jsonl: one line of the jsonl view
    linetimes     the times that lines of a log contain
    expressions   regular expressions in forms that native code can search for
    matching      which records a query wants
    templates     records in a form that a template gives
    partitioner   the partition that Kafka's producers choose for a key

Native code, every loop over the bytes of records. Each module is compiled with ``_core.pxi``, which
reads, measures and renders one record, and is given by its parts:

    module         parts                        classes and functions
    _reading       search                       find_offset, find_timestamp: places in a log
                   matching                     RecordSearch: which records a query wants
                   decode                       decode_batches: batches to Record objects
                   matched_lines                the wanted records as the lines of a view
    _indexing      producers, index             IndexBuilder: the entries of the indexes
    _rendering     render                       Renderer: batches to the bytes of a view
                   marks                        BatchMarks: places inside a large batch
    _encoding      lines, drafts, encode        encode_lines, encode_records: to batches
                   partition_lines              the partition of each line, by its key
                   rows                         RowEncoder: Arrow columns to batches
    _compaction    offsetmap                    OffsetMap: key -> last offset
                   key_filter, rewrite, filter  BatchFilter: what is left of a segment
                   kept_records                 KeptRecords: positions after a broker's compaction
    _packing       rewrite, pack                BatchPacker: merged and compressed batches
    _dumping       dump                         Dumper: batches as kafka-dump-log prints them
    _columnar      columns                      ColumnBuilder: batches to Arrow columns

``_core.pxi`` contains also ``_legacy.pxi``, messages of formats v0 and v1 as batches, and
``_verdict.pxi``, whether a batch may be where it is. ``_structures.pxd`` has the constants and
structures that all of them know. The innermost loops are C, each header for one thing: ``_bytes.h``
numbers and runs of text, ``_plain.h`` plain records, ``_lines.h`` lines, ``_hash.h`` keys,
``_find.h`` needles, ``_pcre.h`` regular expressions, ``_json.h`` members, ``_logend.h`` the end of
a segment.

Renderings of one record, each ended by one LF:

    text   the value's bytes; nothing for a null value
    tsv    key TAB value; backslash, TAB, LF and CR escaped as \\ \t \n \r; null as \N
    jsonl  {"offset":7,"timestamp":1700000000000,"key":null,"value":"v","headers":[["h","x"]]}
           strings as json.dumps(ensure_ascii=False) writes them; {"base64":"..."} where the bytes
           are not UTF-8

Control batches and batches without records render to nothing. A record's timestamp is the batch's
max timestamp if the LogAppendTime bit is set, else base timestamp + delta. Bytes that are read must
not change during a call, and objects are used by one thread at a time, a ``RecordSearch`` by
several: longer loops run without the GIL. Any bytes give a result or ``CorruptRecordError``.

Import from the modules.
"""
