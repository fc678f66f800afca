"""KRaft's control records, and no others; see ``messages`` for the notation.

Source: Kafka, messages of the clients.
"""

from logfs.log.dumping.messages import parse_schemas

SCHEMAS = parse_schemas("""
LeaderChangeMessage versions=0-1 flexible=0+
  version int16
  leaderId int32
  voters []struct
    voterId int32
    voterDirectoryId uuid versions=1+
  grantingVoters []struct
    voterId int32
    voterDirectoryId uuid versions=1+
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
