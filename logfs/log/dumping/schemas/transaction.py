"""What ``__transaction_state`` holds; see ``messages`` for the notation.

Source: Kafka, messages of the transaction coordinator.
"""

from logfs.log.dumping.messages import parse_schemas

SCHEMAS = parse_schemas("""
TransactionLogKey key=0 versions=0
  transactionalId string
TransactionLogValue key=0 versions=0-1 flexible=1+
  producerId int64
  previousProducerId int64 tag=0 tagged=1+ default=-1
  nextProducerId int64 tag=1 tagged=1+ default=-1
  producerEpoch int16
  nextProducerEpoch int16 tag=3 tagged=1+ default=-1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct null=0+
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 tag=2 tagged=1+ default=0
""")
