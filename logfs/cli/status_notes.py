"""What to know of a data directory beside its numbers, and the verdict that follows from it.

``logfs status`` prints the notes below its table. ``--json`` has them with their kinds.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from logfs.cli.terminal.quantities import format_duration
from logfs.cli.terminal.tables import counted, format_bytes, format_time
from logfs.machine.host import system_clock, user_name

if TYPE_CHECKING:
    from logfs.library.group_lags import GroupLag
    from logfs.library.status import Status
    from logfs.services.overview import PartitionOverview, TopicOverview

_UNSEEN_MS = 86_400_000
"""After so long without its process a forward is named."""
_MOST_GROUPS = 20


class Verdict(IntEnum):
    """How a data directory is; the exit status of ``logfs status``."""

    OK = 0
    TROUBLE = 1
    UNKNOWN = 2


class StatusNote(NamedTuple):
    """One thing to know.

    Attributes:
        kind: ``full``, ``offline``, ``loss``, ``user``, ``group``, ``mirror``, ``forward``,
            ``quota``, ``unknown``, ``config`` or ``setting``.
        text: For people; may contain characters that a terminal must not get.
        topic, partition: The partition of the note; None: all of the directory, or of the topic.
        verdict: The state of the directory that follows from the note.
    """

    kind: str
    text: str
    topic: str | None = None
    partition: int | None = None
    verdict: Verdict = Verdict.OK

    def as_json(self) -> dict[str, object]:
        """Return it for JSON."""
        return {**self._asdict(), "verdict": self.verdict.name.lower()}


def verdict_of(notes: Sequence[StatusNote]) -> Verdict:
    """Return how a data directory is: trouble weighs more than what is unknown."""
    found = {note.verdict for note in notes}
    return Verdict.TROUBLE if Verdict.TROUBLE in found else max(found, default=Verdict.OK)


def is_unknown(row: "PartitionOverview") -> bool:
    """Tell whether nothing is known of the records of a partition, so that it may be damaged."""
    return row.log_end_offset is None and row.offline is None


def notes_of(found: "Status") -> list[StatusNote]:
    """Return what to know of a data directory, the worst first."""
    notes = []
    if found.is_full:
        text = (
            "the disk is full, so appends fail: 'logfs trim --now' and 'logfs topic delete' make "
            "room on it, and so does retention"
        )
        notes.append(StatusNote("full", text, verdict=Verdict.TROUBLE))
    for row in found.partitions:
        notes += _of_partition(row)
    notes += of_users(found.metrics or {})
    notes += _of_groups(found)
    for topic in found.topics:
        for part in (_of_mirror, _of_forwards, _of_quotas, _of_unknown, _of_settings):
            notes += part(topic)
    return notes


def _of_partition(row: "PartitionOverview") -> Iterator[StatusNote]:
    name, place = f"{row.topic}/{row.partition}", (row.topic, row.partition, Verdict.TROUBLE)
    if row.offline is not None:
        yield StatusNote("offline", f"{name} is offline: {row.offline}", *place)
    if row.last_loss is not None:
        loss = row.last_loss
        when = format_time(int(str(loss["time_ms"])))
        text = f"{name}: {counted(row.losses, 'loss')}, the last at {when}: {loss['kind']}, "
        yield StatusNote("loss", f"{text}{loss['bytes']} bytes: {loss['detail']}", *place)


def _of_mirror(topic: "TopicOverview") -> Iterator[StatusNote]:
    """Yield what a topic is a mirror of, its lag if that is known, and what is wrong."""
    found = [row.mirror for row in topic.partitions if row.mirror is not None]
    if not found:
        return
    lags = [lag for facts in found if isinstance(lag := facts.get("lag_records"), int)]
    lag = f", lag {counted(sum(lags), 'offset')}" if lags else ""
    source = f"topic {found[0]['source']} of the Kafka cluster {found[0]['cluster_id']}"
    yield StatusNote("mirror", f"{topic.topic} is a mirror of {source}{lag}", topic.topic)
    yield from _problem("mirror", topic.topic, found)


def _of_forwards(topic: "TopicOverview") -> Iterator[StatusNote]:
    """Yield where a topic is forwarded to, the lag, and what is wrong."""
    found = [facts for row in topic.partitions for facts in row.forwards]
    for to in dict.fromkeys(str(facts["to"]) for facts in found):
        mine = [facts for facts in found if facts["to"] == to]
        lag = sum(facts["lag_records"] for facts in mine if isinstance(facts["lag_records"], int))
        is_idle = any(facts.get("state") == "stopped" for facts in mine)
        state = ", stopped: its records are held" if is_idle and lag else ""
        text = f"{topic.topic} is forwarded to {to}, lag {counted(lag, 'offset')}{state}"
        yield StatusNote("forward", text, topic.topic)
        yield from _problem("forward", topic.topic, mine)
        seen = [at for facts in mine if isinstance(at := facts.get("reported"), int)]
        if lag and seen and system_clock().now_ms() - max(seen) >= _UNSEEN_MS:
            text = (
                f"{topic.topic}: nothing has forwarded it to {to} since {format_time(max(seen))}, "
                f"and retention keeps {counted(lag, 'offset')} for that. Run 'logfs forward', or "
                "remove the files logfs.forward-* of its partitions to let go of them"
            )
            yield StatusNote("forward", text, topic.topic)


def _problem(kind: str, topic: str, found: Sequence[Mapping[str, object]]) -> Iterator[StatusNote]:
    why = next((str(facts["error"]) for facts in found if facts.get("error")), "")
    if why:
        yield StatusNote(
            kind, f"{topic}: its {kind} has a problem: {why}", topic, None, Verdict.TROUBLE
        )


def _of_quotas(topic: "TopicOverview") -> Iterator[StatusNote]:
    """Yield how much of its quotas a topic uses, and what came of it."""
    facts = topic.quota
    if facts is None:
        return
    if facts["bytes"] >= 0:
        share = f"{format_bytes(int(facts['used_bytes']))} of {format_bytes(int(facts['bytes']))}"
        refused = int(facts["refused"])
        text = f", {counted(refused, 'append')} refused" if refused else ""
        yield StatusNote("quota", f"{topic.topic} has a quota: {share} used{text}", topic.topic)
    if facts["producer_byte_rate"] > 0:
        rate, waits = int(facts["producer_byte_rate"]), int(facts["throttled"])
        waited = f", for {format_duration(facts['throttled_seconds'])} in all"
        text = f"; {counted(waits, 'append')} had to wait{waited}" if waits else ""
        yield StatusNote(
            "quota", f"{topic.topic} takes {format_bytes(rate)} a second{text}", topic.topic
        )


def _of_unknown(topic: "TopicOverview") -> Iterator[StatusNote]:
    """Yield how many partitions nothing is known of, and why."""
    unknown = [row for row in topic.partitions if is_unknown(row)]
    closed = sum(row.segments is None for row in unknown)
    place = (topic.topic, None, Verdict.UNKNOWN)
    if closed:
        count = counted(closed, "partition")
        text = f"{topic.topic}: nothing is known of {count}, which you may not read"
        yield StatusNote("unknown", text, *place)
    if len(unknown) > closed:
        count = counted(len(unknown) - closed, "partition")
        text = (
            f"{topic.topic}: nothing is known of the records of {count}, which logfs has never "
            "loaded: 'logfs verify' checks them, and a mount loads them"
        )
        yield StatusNote("unknown", text, *place)


def _of_settings(topic: "TopicOverview") -> Iterator[StatusNote]:
    """Yield that a topic has no configuration, and what is probably a mistake in the one it has."""
    if topic.has_config is False:
        text = (
            f"{topic.topic} has no configuration, as a broker leaves it: nothing is "
            "ever trimmed or compacted until 'logfs topic alter' has set its policy"
        )
        yield StatusNote("config", text, topic.topic)
    for warning in (*topic.warnings, *topic.expired):
        yield StatusNote("setting", f"{topic.topic}: warning: {warning}", topic.topic)


def of_users(metrics: Mapping[str, Any]) -> Iterator[StatusNote]:
    """Yield what users with limits use, and what came of it."""

    def by_user(name: str) -> dict[str, float]:
        return {row["user"]: row["value"] for row in metrics.get(name, ())}

    limit, used = metrics.get("logfs_user_max_bytes"), by_user("logfs_user_used_bytes")
    waits = by_user("logfs_user_throttled_total")
    waited_s = by_user("logfs_user_throttled_seconds_total")
    for user, count in by_user("logfs_user_refused_total").items():
        facts = []
        if limit is not None and user in used:
            facts.append(f"{format_bytes(int(used[user]))} of {format_bytes(int(limit))} used")
        if count:
            facts.append(f"{counted(int(count), 'request')} refused")
        if waits[user]:
            writes = counted(int(waits[user]), "write")
            facts.append(f"{writes} had to wait, for {format_duration(waited_s[user])} in all")
        if facts:
            yield StatusNote("user", f"user {user_name(int(user))}: {', '.join(facts)}")


def _of_groups(found: "Status") -> list[StatusNote]:
    """Return what consumer groups have not read yet."""
    lags: dict[tuple[str, str], list[GroupLag]] = {}
    for row in found.groups:
        lags.setdefault((row.group, row.topic), []).append(row)
    notes = []
    for (group, topic), rows in lags.items():
        known = [row.lag for row in rows if row.lag is not None]
        records = sum(lag.records for lag in known)
        if records:
            age_s = max((lag.seconds for lag in known if lag.seconds is not None), default=None)
            age = "" if age_s is None else f", the oldest {format_duration(age_s)} old"
            text = f"group {group} has not read {counted(records, 'record')} of {topic}{age}"
            notes.append(StatusNote("group", text, topic))
    if len(notes) > _MOST_GROUPS:
        more = len(notes) - _MOST_GROUPS
        text = f"and {more} more: 'logfs group list' shows all groups"
        notes[_MOST_GROUPS:] = [StatusNote("group", text)]
    return notes
