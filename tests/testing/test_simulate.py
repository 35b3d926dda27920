"""The simulator as a command."""

import pytest

from reknit.testing import simulate
from reknit.testing.faults import FaultPlan
from reknit.testing.simulate import describe, main
from reknit.testing.simulation import Verdict


def test_one_seed_is_replayed_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert "is up, its journal ends at 0" in out
    assert "seed 2: " in out
    assert "accounted for" in out


def test_many_good_seeds_are_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "10", "--processes", "1"]) == 0
    assert "seeds 10 to 12: all good" in capsys.readouterr().out


def test_first_bad_seed_is_printed_as_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(seed: int) -> Verdict:
        return Verdict(FaultPlan(seed=seed), ["an event is lost"] if seed >= 30 else [], 1, 1)

    monkeypatch.setattr(simulate, "run", run)
    assert main(["--seeds", "100", "--processes", "1"]) == 1
    assert capsys.readouterr().out.endswith("  an event is lost\nreplay it: make sim SEED=30\n")


def test_long_list_of_problems_is_cut() -> None:
    text = describe(Verdict(FaultPlan(seed=1), [f"problem {number}" for number in range(12)], 1, 1))
    assert "problem 9" in text
    assert "problem 10" not in text
    assert "and 2 more" in text


def test_one_seed_and_many_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--seeds", "2"])
