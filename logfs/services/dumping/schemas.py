"""Schemas of the messages that Kafka keeps in its own logs; see ``messages`` for the notation.

Source: Kafka 4.1, messages of the coordinators, of the consumer protocol and of the clients.
"""

from logfs.services.dumping.messages import parse_schemas

GROUP = parse_schemas("""
PartitionKey
  group string
  topic string
  partition int32
GroupKey
  groupId string
MemberKey
  groupId string
  memberId string
TopicPartitions
  topicId uuid
  partitions []int32
NamedTopic
  topicId uuid
  topicName string
  partitions []int32
Tasks
  subtopologyId string
  partitions []int32
InternalTopic
  name string
  partitions int32
  replicationFactor int16
  topicConfigs []struct
    key string
    value string
Assignment
  assignmentEpoch int32
GroupEpoch
  epoch int32
  metadataHash int64
LegacyOffsetCommitKey key=0 versions=0 fields=PartitionKey
LegacyOffsetCommitValue key=0 versions=0
  offset int64
  metadata string
  commitTimestamp int64
OffsetCommitKey key=1 versions=0 fields=PartitionKey
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
ConsumerGroupMetadataKey key=3 versions=0 fields=GroupKey
ConsumerGroupMetadataValue key=3 versions=0 flexible=0+
  epoch int32
  metadataHash int64 tag=0 default=0
ConsumerGroupPartitionMetadataKey key=4 versions=0 fields=GroupKey
ConsumerGroupPartitionMetadataValue key=4 versions=0 flexible=0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string
ConsumerGroupMemberMetadataKey key=5 versions=0 fields=MemberKey
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
ConsumerGroupTargetAssignmentMetadataKey key=6 versions=0 fields=GroupKey
ConsumerGroupTargetAssignmentMetadataValue key=6 versions=0 flexible=0+ fields=Assignment
ConsumerGroupTargetAssignmentMemberKey key=7 versions=0 fields=MemberKey
ConsumerGroupTargetAssignmentMemberValue key=7 versions=0 flexible=0+
  topicPartitions []TopicPartitions
ConsumerGroupCurrentMemberAssignmentKey key=8 versions=0 fields=MemberKey
ConsumerGroupCurrentMemberAssignmentValue key=8 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []TopicPartitions
  partitionsPendingRevocation []TopicPartitions
ShareGroupMemberMetadataKey key=10 versions=0 fields=MemberKey
ShareGroupMemberMetadataValue key=10 versions=0 flexible=0+
  rackId string null=0+
  clientId string
  clientHost string
  subscribedTopicNames []string
ShareGroupMetadataKey key=11 versions=0 fields=GroupKey
ShareGroupMetadataValue key=11 versions=0 flexible=0+ fields=GroupEpoch
ShareGroupTargetAssignmentMetadataKey key=12 versions=0 fields=GroupKey
ShareGroupTargetAssignmentMetadataValue key=12 versions=0 flexible=0+ fields=Assignment
ShareGroupTargetAssignmentMemberKey key=13 versions=0 fields=MemberKey
ShareGroupTargetAssignmentMemberValue key=13 versions=0 flexible=0+
  topicPartitions []TopicPartitions
ShareGroupCurrentMemberAssignmentKey key=14 versions=0 fields=MemberKey
ShareGroupCurrentMemberAssignmentValue key=14 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []TopicPartitions
ShareGroupStatePartitionMetadataKey key=15 versions=0 fields=GroupKey
ShareGroupStatePartitionMetadataValue key=15 versions=0 flexible=0+
  initializingTopics []NamedTopic
  initializedTopics []NamedTopic
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
StreamsGroupMetadataKey key=17 versions=0 fields=GroupKey
StreamsGroupMetadataValue key=17 versions=0 flexible=0+ fields=GroupEpoch
StreamsGroupMemberMetadataKey key=19 versions=0 fields=MemberKey
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
StreamsGroupTargetAssignmentMetadataKey key=20 versions=0 fields=GroupKey
StreamsGroupTargetAssignmentMetadataValue key=20 versions=0 flexible=0+ fields=Assignment
StreamsGroupTargetAssignmentMemberKey key=21 versions=0 fields=MemberKey
StreamsGroupTargetAssignmentMemberValue key=21 versions=0 flexible=0+
  activeTasks []Tasks
  standbyTasks []Tasks
  warmupTasks []Tasks
StreamsGroupCurrentMemberAssignmentKey key=22 versions=0 fields=MemberKey
StreamsGroupCurrentMemberAssignmentValue key=22 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []Tasks
  standbyTasks []Tasks
  warmupTasks []Tasks
  activeTasksPendingRevocation []Tasks
  standbyTasksPendingRevocation []Tasks
  warmupTasksPendingRevocation []Tasks
StreamsGroupTopologyKey key=23 versions=0 fields=GroupKey
StreamsGroupTopologyValue key=23 versions=0 flexible=0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []InternalTopic
    repartitionSinkTopics []string
    repartitionSourceTopics []InternalTopic
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
"""The schemas of the records of ``__consumer_offsets``."""

TRANSACTION = parse_schemas("""
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
"""The schemas of the records of ``__transaction_state``."""

SHARE = parse_schemas("""
PartitionKey
  groupId string
  topicId uuid
  partition int32
StateBatch
  firstOffset int64
  lastOffset int64
  deliveryState int8
  deliveryCount int16
ShareSnapshotKey key=0 versions=0 fields=PartitionKey
ShareSnapshotValue key=0 versions=0 flexible=0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  createTimestamp int64
  writeTimestamp int64
  stateBatches []StateBatch
ShareUpdateKey key=1 versions=0 fields=PartitionKey
ShareUpdateValue key=1 versions=0 flexible=0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  stateBatches []StateBatch
""")
"""The schemas of the records of ``__share_group_state``."""

METADATA = parse_schemas("""
EndPoint
  name string
  host string
  port uint16
  securityProtocol int16
Feature
  name string
  minSupportedVersion int16
  maxSupportedVersion int16
BrokerEpoch
  id int32
  epoch int64
RegisterBrokerRecord key=0 versions=0-3 flexible=0+
  brokerId int32
  isMigratingZkBroker bool versions=2+
  incarnationId uuid
  brokerEpoch int64
  endPoints []EndPoint
  features []Feature
  rack string null=0+
  fenced bool
  inControlledShutdown bool versions=1+
  logDirs []uuid versions=3+ tag=0
UnregisterBrokerRecord key=1 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64
TopicRecord key=2 versions=0 flexible=0+
  name string
  topicId uuid
PartitionRecord key=3 versions=0-2 flexible=0+
  partitionId int32
  topicId uuid
  replicas []int32
  isr []int32
  removingReplicas []int32
  addingReplicas []int32
  leader int32
  leaderRecoveryState int8 tag=0 default=0
  leaderEpoch int32
  partitionEpoch int32
  directories []uuid versions=1+
  eligibleLeaderReplicas []int32 versions=2+ null=2+ tag=1 default=null
  lastKnownElr []int32 versions=2+ null=2+ tag=2 default=null
ConfigRecord key=4 versions=0 flexible=0+
  resourceType int8
  resourceName string
  name string
  value string null=0+
PartitionChangeRecord key=5 versions=0-2 flexible=0+
  partitionId int32
  topicId uuid
  isr []int32 null=0+ tag=0 default=null
  leader int32 tag=1 default=-2
  replicas []int32 null=0+ tag=2 default=null
  removingReplicas []int32 null=0+ tag=3 default=null
  addingReplicas []int32 null=0+ tag=4 default=null
  leaderRecoveryState int8 tag=5 default=-1
  directories []uuid versions=1+ null=1+ tag=8 default=null
  eligibleLeaderReplicas []int32 versions=2+ null=2+ tag=6 default=null
  lastKnownElr []int32 versions=2+ null=2+ tag=7 default=null
FenceBrokerRecord key=7 versions=0 flexible=0+ fields=BrokerEpoch
UnfenceBrokerRecord key=8 versions=0 flexible=0+ fields=BrokerEpoch
RemoveTopicRecord key=9 versions=0 flexible=0+
  topicId uuid
DelegationTokenRecord key=10 versions=0 flexible=0+
  owner string
  requester string
  renewers []string
  issueTimestamp int64
  maxTimestamp int64
  expirationTimestamp int64
  tokenId string
UserScramCredentialRecord key=11 versions=0 flexible=0+
  name string
  mechanism int8
  salt bytes
  storedKey bytes
  serverKey bytes
  iterations int32
FeatureLevelRecord key=12 versions=0 flexible=0+
  name string
  featureLevel int16
ClientQuotaRecord key=14 versions=0 flexible=0+
  entity []struct
    entityType string
    entityName string null=0+
  key string
  value float64
  remove bool
ProducerIdsRecord key=15 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64
  nextProducerId int64
BrokerRegistrationChangeRecord key=17 versions=0-2 flexible=0+
  brokerId int32
  brokerEpoch int64
  fenced int8 tag=0
  inControlledShutdown int8 versions=1+ tag=1
  logDirs []uuid versions=2+ tag=2
AccessControlEntryRecord key=18 versions=0 flexible=0+
  id uuid
  resourceType int8
  resourceName string
  patternType int8
  principal string
  host string
  operation int8
  permissionType int8
RemoveAccessControlEntryRecord key=19 versions=0 flexible=0+
  id uuid
NoOpRecord key=20 versions=0 flexible=0+
ZkMigrationStateRecord key=21 versions=0 flexible=0+
  zkMigrationState int8
RemoveUserScramCredentialRecord key=22 versions=0 flexible=0+
  name string
  mechanism int8
BeginTransactionRecord key=23 versions=0 flexible=0+
  name string null=0+ tag=0 default=null
EndTransactionRecord key=24 versions=0 flexible=0+
AbortTransactionRecord key=25 versions=0 flexible=0+
  reason string null=0+ tag=0 default=null
RemoveDelegationTokenRecord key=26 versions=0 flexible=0+
  tokenId string
RegisterControllerRecord key=27 versions=0 flexible=0+
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  endPoints []EndPoint
  features []Feature
ClearElrRecord key=28 versions=0 flexible=0+
  topicName string
""")
"""The schemas of the records of ``__cluster_metadata``."""

CONTROL = parse_schemas("""
Voter
  voterId int32
  voterDirectoryId uuid versions=1+
LeaderChangeMessage versions=0-1 flexible=0+
  version int16
  leaderId int32
  voters []Voter
  grantingVoters []Voter
SnapshotHeaderRecord versions=0 flexible=0+
  version int16
  lastContainedLogTimestamp int64
SnapshotFooterRecord versions=0 flexible=0+
  version int16
KRaftVersionRecord versions=0 flexible=0+
  version int16
  kRaftVersion int16
VotersRecord versions=0 flexible=0+
  version int16
  voters []struct
    voterId int32
    voterDirectoryId uuid
    endpoints []struct
      name string
      host string
      port uint16
    kRaftVersionFeature struct
      minSupportedVersion int16
      maxSupportedVersion int16
""")
"""KRaft's control records."""
