"""Every planted defect can be planted, and one that cannot fails the run."""

from pathlib import Path

import pytest

from tests.simulation import planted
from tests.simulation.planted import PATCHES, apply, copy_tree, plant_all, planted_each


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("path", sorted(PATCHES.glob("*.patch")), ids=lambda path: path.stem)
def test_a_planted_defect_applies_and_is_named(path: Path, tree: Path) -> None:
    title, _, diff = path.read_text().partition("\n")
    assert title[0].isupper()
    assert diff.removeprefix("Found by: ").partition("--- a/logfs/")[0].count("\n") <= 1
    (name,) = (row.removeprefix("+++ b/") for row in diff.splitlines() if row.startswith("+++ "))
    before = (tree / name).read_bytes()
    assert apply(path, tree) == ""
    assert (tree / name).read_bytes() != before
    assert apply(path, tree, is_undone=True) == ""
    assert (tree / name).read_bytes() == before


def test_a_defect_that_cannot_be_planted_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = min(PATCHES.glob("*.patch")).read_text()
    (tmp_path / "old.patch").write_text(text.replace("--- a/logfs", "--- a/gone").replace(
        "+++ b/logfs", "+++ b/gone"
    ))  # fmt: skip
    monkeypatch.setattr(planted, "PATCHES", tmp_path)
    assert plant_all([], 1) == 1
    assert "old" in capsys.readouterr().out


@pytest.mark.long
def test_every_planted_defect_is_found_whose_sequence_is_known() -> None:
    known = [path.stem for path in PATCHES.glob("*.patch") if "\nFound by: " in path.read_text()]
    missed = [row for row in planted_each(known, 60) if not row.is_found]
    assert not missed, "\n".join(map(str, missed))
