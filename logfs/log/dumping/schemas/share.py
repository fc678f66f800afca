"""What ``__share_group_state`` holds; see ``messages`` for the notation.

Source: Kafka, messages of the share coordinator.
"""

from logfs.log.dumping.messages import parse_schemas

SCHEMAS = parse_schemas("""
ShareSnapshotKey key=0 versions=0
  groupId string
  topicId uuid
  partition int32
ShareSnapshotValue key=0 versions=0 flexible=0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  createTimestamp int64
  writeTimestamp int64
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
ShareUpdateKey key=1 versions=0
  groupId string
  topicId uuid
  partition int32
ShareUpdateValue key=1 versions=0 flexible=0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
""")
