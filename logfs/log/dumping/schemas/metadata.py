"""What ``__cluster_metadata`` holds; see ``messages`` for the notation.

Source: Kafka, records of the metadata log.
"""

from logfs.log.dumping.messages import parse_schemas

SCHEMAS = parse_schemas("""
RegisterBrokerRecord key=0 versions=0-3 flexible=0+
  brokerId int32
  isMigratingZkBroker bool versions=2+
  incarnationId uuid
  brokerEpoch int64
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
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
FenceBrokerRecord key=7 versions=0 flexible=0+
  id int32
  epoch int64
UnfenceBrokerRecord key=8 versions=0 flexible=0+
  id int32
  epoch int64
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
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
ClearElrRecord key=28 versions=0 flexible=0+
  topicName string
""")
