"""Checking: nothing is found in what is whole, and every damage where it is."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kafka.scenarios import SCENARIOS
from tests.log.support import Bench, batches_in
from tests.log.verifying import DAMAGES, SMALL, check, compacted, flip, killed, places, plain


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_found_in_what_is_whole(name: str) -> None:
    scenario = SCENARIOS[name]
    bench = Bench(scenario.config)
    expected = scenario.write(bench.log)
    assert check(bench.disk).damages == []
    bench.disk.kill()
    assert check(bench.disk).damages == []
    bench.store = bench.open()
    bench.restart()
    bench.store.close(bench.now_ms)
    verified = check(bench.disk)
    assert verified.findings == []
    assert (verified.partitions, verified.records >= len(expected.records)) == (1, True)


@pytest.mark.parametrize("make", [plain, killed, compacted])
def test_the_logs_that_are_damaged_are_whole_before(make: Callable[[], Bench]) -> None:
    bench = make()
    assert check(bench.disk).damages == []
    assert len(bench.names(".log")) > 3


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found_where_it_is(name: str) -> None:
    make, damage = DAMAGES[name]
    bench = make()
    place = damage(bench)
    findings = check(bench.disk).damages
    assert place in places(findings), [str(finding) for finding in findings]
    for finding in findings:
        assert finding.problem
        assert finding.remedy
        assert "\n" not in str(finding)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_byte_of_a_log_that_is_changed_is_found(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(["uncompressed", "zstd", "lz4"]))
    bench = Bench({"compression.type": codec, **SMALL})
    for first in range(0, 24, 3):
        bench.writer().write(b"".join(b"line %d\n" % n for n in range(first, first + 3)), 1)
    if data.draw(st.booleans()):
        bench.store.close(bench.now_ms)
    else:
        bench.disk.kill()
    name = data.draw(st.sampled_from(bench.names(".log")))
    content = bench.file(name)
    at = data.draw(st.integers(0, len(content) - 1))
    flip(bench, name, at, data.draw(st.integers(1, 255)))
    batch = max(position for position, _ in batches_in(content) if position <= at)
    assert (name, batch) in places(check(bench.disk).damages)
