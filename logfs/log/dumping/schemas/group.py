"""What ``__consumer_offsets`` holds; see ``messages`` for the notation.

Source: Kafka, messages of the group coordinator and of the consumer protocol.
"""

from logfs.log.dumping.messages import parse_schemas

SCHEMAS = parse_schemas("""
LegacyOffsetCommitKey key=0 versions=0
  group string
  topic string
  partition int32
LegacyOffsetCommitValue key=0 versions=0
  offset int64
  metadata string
  commitTimestamp int64
OffsetCommitKey key=1 versions=0
  group string
  topic string
  partition int32
OffsetCommitValue key=1 versions=0-4 flexible=4+
  offset int64
  leaderEpoch int32 versions=3+
  metadata string
  commitTimestamp int64
  expireTimestamp int64 versions=1
  topicId uuid versions=4+ tag=0
GroupMetadataKey key=2 versions=0
  group string
GroupMetadataValue key=2 versions=0-4 flexible=4+
  protocolType string
  generation int32
  protocol string null=0+
  leader string null=0+
  currentStateTimestamp int64 versions=2+
  members []struct
    memberId string
    groupInstanceId string versions=3+ null=3+
    clientId string
    clientHost string
    rebalanceTimeout int32 versions=1+
    sessionTimeout int32
    subscription bytes
    assignment bytes
ConsumerGroupMetadataKey key=3 versions=0
  groupId string
ConsumerGroupMetadataValue key=3 versions=0 flexible=0+
  epoch int32
  metadataHash int64 tag=0 default=0
ConsumerGroupPartitionMetadataKey key=4 versions=0
  groupId string
ConsumerGroupPartitionMetadataValue key=4 versions=0 flexible=0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string
ConsumerGroupMemberMetadataKey key=5 versions=0
  groupId string
  memberId string
ConsumerGroupMemberMetadataValue key=5 versions=0 flexible=0+
  instanceId string null=0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string null=0+
  rebalanceTimeoutMs int32
  serverAssignor string null=0+
  classicMemberMetadata struct null=0+ tag=0
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes
ConsumerGroupTargetAssignmentMetadataKey key=6 versions=0
  groupId string
ConsumerGroupTargetAssignmentMetadataValue key=6 versions=0 flexible=0+
  assignmentEpoch int32
ConsumerGroupTargetAssignmentMemberKey key=7 versions=0
  groupId string
  memberId string
ConsumerGroupTargetAssignmentMemberValue key=7 versions=0 flexible=0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ConsumerGroupCurrentMemberAssignmentKey key=8 versions=0
  groupId string
  memberId string
ConsumerGroupCurrentMemberAssignmentValue key=8 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
ShareGroupMemberMetadataKey key=10 versions=0
  groupId string
  memberId string
ShareGroupMemberMetadataValue key=10 versions=0 flexible=0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
ShareGroupMetadataKey key=11 versions=0
  groupId string
ShareGroupMetadataValue key=11 versions=0 flexible=0+
  epoch int32
  metadataHash int64
ShareGroupTargetAssignmentMetadataKey key=12 versions=0
  groupId string
ShareGroupTargetAssignmentMetadataValue key=12 versions=0 flexible=0+
  assignmentEpoch int32
ShareGroupTargetAssignmentMemberKey key=13 versions=0
  groupId string
  memberId string
ShareGroupTargetAssignmentMemberValue key=13 versions=0 flexible=0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
ShareGroupCurrentMemberAssignmentKey key=14 versions=0
  groupId string
  memberId string
ShareGroupCurrentMemberAssignmentValue key=14 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
ShareGroupStatePartitionMetadataKey key=15 versions=0
  groupId string
ShareGroupStatePartitionMetadataValue key=15 versions=0 flexible=0+
  initializingTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string
ConsumerGroupRegularExpressionKey key=16 versions=0
  groupId string
  regularExpression string
ConsumerGroupRegularExpressionValue key=16 versions=0 flexible=0+
  topics []string
  version int64
  timestamp int64
StreamsGroupMetadataKey key=17 versions=0
  groupId string
StreamsGroupMetadataValue key=17 versions=0 flexible=0+
  epoch int32
  metadataHash int64
StreamsGroupMemberMetadataKey key=19 versions=0
  groupId string
  memberId string
StreamsGroupMemberMetadataValue key=19 versions=0 flexible=0+
  instanceId string null=0+
  rackId string null=0+
  clientId string
  clientHost string
  rebalanceTimeoutMs int32
  topologyEpoch int32
  processId string
  userEndpoint struct null=0+
    host string
    port uint16
  clientTags []struct
    key string
    value string
StreamsGroupTargetAssignmentMetadataKey key=20 versions=0
  groupId string
StreamsGroupTargetAssignmentMetadataValue key=20 versions=0 flexible=0+
  assignmentEpoch int32
StreamsGroupTargetAssignmentMemberKey key=21 versions=0
  groupId string
  memberId string
StreamsGroupTargetAssignmentMemberValue key=21 versions=0 flexible=0+
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32
StreamsGroupCurrentMemberAssignmentKey key=22 versions=0
  groupId string
  memberId string
StreamsGroupCurrentMemberAssignmentValue key=22 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32
  activeTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
  standbyTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
  warmupTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
StreamsGroupTopologyKey key=23 versions=0
  groupId string
StreamsGroupTopologyValue key=23 versions=0 flexible=0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    copartitionGroups []struct
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
ConsumerProtocolSubscription versions=0-3
  topics []string
  userData bytes null=0+
  ownedPartitions []struct versions=1+
    topic string versions=1+
    partitions []int32 versions=1+
  generationId int32 versions=2+
  rackId string versions=3+ null=3+
ConsumerProtocolAssignment versions=0-3
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes null=0+
""")
