import base64
import struct

import pytest

from logfs.errors import CorruptRecordError, InvalidConfigError
from logfs.services.dumping import decoders
from logfs.services.dumping.decoders import control_text
from logfs.services.dumping.messages import Reader, decode_message, json_text, parse_schemas
from logfs.services.dumping.output import Parse

# Written by Kafka 4.1.1 and printed by its kafka-dump-log.
GROUP = (
    "0002000772656164657273",
    """00030008636f6e73756d657200000001000572616e6765002c6772c3b6c39f652d34343731396361352d353962622d
    343632652d386565332d333830633565313839383234000001a1fd1389fc00000001002c6772c3b6c39f652d3434373139
    6361352d353962622d343632652d386565332d333830633565313839383234ffff00076772c3b6c39f65000a2f3132372e
    302e302e31000493e00000afc80000001c00030000000100066f72646572730000000000000000ffffffff00000000001a
    00000000000100066f7264657273000000010000000000000000""",
    '{"type":"2","data":{"group":"readers"}}',
    '{"version":"3","data":{"protocolType":"consumer","generation":1,"protocol":"range","leader":'
    '"größe-44719ca5-59bb-462e-8ee3-380c5e189824","currentStateTimestamp":1795247278588,"members":'
    '[{"memberId":"größe-44719ca5-59bb-462e-8ee3-380c5e189824","groupInstanceId":null,"clientId":'
    '"größe","clientHost":"/127.0.0.1","rebalanceTimeout":300000,"sessionTimeout":45000,'
    '"subscription":{"topics":["orders"],"userData":"","ownedPartitions":[],"generationId":-1,'
    '"rackId":""},"assignment":{"assignedPartitions":[{"topic":"orders","partitions":[0]}],'
    '"userData":""}}]}}',
)
MEMBER = (
    "000500036e65770016564d6c554f4b6a5552493672317169612b7474396a77",
    "000000000872646b61666b610b2f3132372e302e302e3102076f726465727301000493e00001000100",
    '{"type":"5","data":{"groupId":"new","memberId":"VMlUOKjURI6r1qia+tt9jw"}}',
    '{"version":"0","data":{"instanceId":null,"rackId":null,"clientId":"rdkafka","clientHost":'
    '"/127.0.0.1","subscribedTopicNames":["orders"],"subscribedTopicRegex":"",'
    '"rebalanceTimeoutMs":300000,"serverAssignor":null,"classicMemberMetadata":null}}',
)
TRANSACTION = (
    "000000086f72646572732d31",
    """0001000000000000000000000000ea600202076f7264657273020000000000000001a1fd137e28000001a1fd137df5
    00""",
    '{"type":"0","data":{"transactionalId":"orders-1"}}',
    '{"version":"1","data":{"producerId":0,"producerEpoch":0,"transactionTimeoutMs":60000,'
    '"transactionStatus":2,"transactionPartitions":[{"topic":"orders","partitionIds":[0]}],'
    '"transactionLastUpdateTimestampMs":1795247275560,"transactionStartTimestampMs":'
    "1795247275509}}",
)
PARTITION = (
    "010302000000000865ebe9f1b14550845b4be50153b35f02000000010200000001010100000001000000000000000002"
    "b626388b6187da15a3fa57ab675e47e900"
)


@pytest.mark.parametrize(
    ("parse", "golden"),
    [
        (decoders.consumer_offsets(), GROUP),
        (decoders.consumer_offsets(), MEMBER),
        (decoders.transaction_log(), TRANSACTION),
    ],
    ids=["a group", "a member with a tagged field", "a transaction with tagged fields left out"],
)
def test_records_of_coordinators(parse: Parse, golden: tuple[str, str, str, str]) -> None:
    key, value, key_text, value_text = golden
    assert parse(0, bytes.fromhex(key), bytes.fromhex(value)) == (
        key_text.encode(),
        value_text.encode(),
    )
    assert parse(0, bytes.fromhex(key), None) == (key_text.encode(), b"<DELETE>")


def test_records_of_coordinators_that_do_not_decode_are_skipped() -> None:
    parse = decoders.consumer_offsets()
    unknown = b"Unknown record type 99 at offset 7, skipping."
    assert parse(7, struct.pack(">h", 99), b"") == (unknown, None)
    key, value = bytes.fromhex(TRANSACTION[0]), bytes.fromhex(TRANSACTION[1])
    for wrong in (b"\0", b"", struct.pack(">h", 9), value[:-3]):
        text, nothing = decoders.transaction_log()(7, key, wrong)
        assert (text or b"").startswith(b"Error at offset 7, skipping. ")
        assert nothing is None
    with pytest.raises(CorruptRecordError, match=r"offset 7 .*missing key"):
        parse(7, None, b"")


def test_records_of_the_cluster() -> None:
    value = bytes.fromhex(PARTITION)
    _, text = decoders.cluster_metadata(23, None, value)
    assert text == (
        b'{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":0,"topicId":'
        b'"CGXr6fGxRVCEW0vlAVOzXw","replicas":[1],"isr":[1],"removingReplicas":[],'
        b'"addingReplicas":[],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"directories":'
        b'["tiY4i2GH2hWj-lerZ15H6Q"]}}'
    )
    for wrong in (b"", b"\0", b"\x01\x63\x00", value + b"\0", value[:-1]):
        _, text = decoders.cluster_metadata(23, None, wrong)
        assert (text or b"").startswith(b"Error at 23, skipping. ")


def test_a_consumer_member_that_does_not_decode_keeps_its_bytes() -> None:
    value = bytes.fromhex(GROUP[1])
    start = value.index(bytes.fromhex("0000001c0003")) + 4
    unknown = b"\x7f\xff" + value[start + 2 : start + 28]
    value = value[:start] + unknown + value[start + 28 :]
    _, text = decoders.consumer_offsets()(0, bytes.fromhex(GROUP[0]), value)
    kept = base64.b64encode(unknown).decode()
    assert f'"subscription":"{kept}","assignment":{{' in (text or b"").decode()


def test_json_is_written_like_java_writes_it() -> None:
    value = {"a": 'q"\\\n\x01ü', "b": [None, True, -1], "c": [5.0, 1e7, 0.0001, 1.5e300]}
    assert json_text(value) == (
        '{"a":"q\\"\\\\\\n\\u0001ü","b":[null,true,-1],"c":[5.0,1.0E7,1.0E-4,1.5E300]}'
    )


def test_versions_choose_fields_and_encodings() -> None:
    schema = parse_schemas(
        """
M key=1 versions=0-2 flexible=2+
  first int16
  late string versions=1+ null=1+
  gone int8 versions=0-1
  many []struct versions=2+
    id int32
    text bytes
  tagged int32 versions=2+ tag=0 default=-1
"""
    )["M"]

    def decode(data: str, version: int) -> object:
        return decode_message(schema, Reader(bytes.fromhex(data)), version)

    assert decode("0007 05", 0) == {"first": 7, "gone": 5}
    assert decode("0007 ffff 05", 1) == {"first": 7, "late": None, "gone": 5}
    flexible = {"first": 7, "late": "ab", "many": [{"id": 1, "text": "eA=="}]}
    assert decode("0007 036162 02 00000001 0278 00 00", 2) == flexible
    tagged = decode("0007 036162 02 00000001 0278 00 02 00 04 00000009 05 01 ff", 2)
    assert tagged == flexible | {"tagged": 9}
    assert decode("0007 036162 02 00000001 0278 00 01 00 04 ffffffff", 2) == flexible
    with pytest.raises(CorruptRecordError, match="version 3"):
        decode("", 3)
    with pytest.raises(CorruptRecordError, match="200 elements"):
        decode("0007 00 c901", 2)


def test_structs_that_may_be_null() -> None:
    schema = parse_schemas(
        """
M versions=0 flexible=0+
  plain struct null=0+
    id int8
  tagged struct null=0+ tag=0
    id int8
"""
    )["M"]

    def decode(data: str) -> object:
        return decode_message(schema, Reader(bytes.fromhex(data)), 0)

    assert decode("ff 00") == {"plain": None}
    assert decode("01 05 00 01 00 03 01 06 00") == {"plain": {"id": 5}, "tagged": {"id": 6}}
    assert decode("ff 01 00 01 00") == {"plain": None, "tagged": None}
    assert decode("ff 01 00 03 01 00 00") == {"plain": None}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("0000", "", "a key of 2 bytes"),
        ("ffff0001", "", "version -1"),
        ("00000001", "0000", "a value of 2 bytes"),
        ("00000001", "ffff00000000", "version -1"),
        ("00000002", "000700", "LeaderChangeMessage of version 7"),
    ],
)
def test_control_records_that_do_not_decode(key: str, value: str, problem: str) -> None:
    with pytest.raises(CorruptRecordError, match=problem):
        control_text(bytes.fromhex(key), bytes.fromhex(value))


def test_classes_of_keys_and_values() -> None:
    assert decoders.decoder_named("org.apache.kafka.tools.api.StringDecoder") is None
    parse = decoders.typed(decoders.decoder_named("ShortDeserializer"), None)
    assert parse is not None
    assert parse(0, struct.pack(">h", -2), b"\xff") == (b"-2", "\ufffd".encode())
    assert parse(0, None, None) == (None, None)
    with pytest.raises(CorruptRecordError, match="1 bytes"):
        parse(0, b"x", b"")
    with pytest.raises(InvalidConfigError, match="known are String, Integer"):
        decoders.decoder_named("org.example.MyDecoder")
