"""The simulator as a command."""

import pytest

from reknit.testing import simulate
from reknit.testing.faults import FaultPlan
from reknit.testing.simulate import describe, main
from reknit.testing.simulation import Verdict


def fails_from(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every seed from this one on fail while a publisher is there."""

    def run_plan(plan: FaultPlan, is_traced: bool = False) -> Verdict:
        is_bad = plan.seed >= seed and plan.publishers > 0
        return Verdict(plan, ["an event is lost"] if is_bad else [], 1, 1)

    monkeypatch.setattr(simulate, "run_plan", run_plan)


def test_one_seed_is_replayed_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert "is up, its journal ends at 0" in out
    assert "seed 2: " in out
    assert "accounted for" in out


def test_seed_is_replayed_with_a_changed_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--quiet", "--set", "publishers=1", "--set", "put_rate=0.5"]) == 0
    out = capsys.readouterr().out
    assert "publishers=1," in out
    assert "put_rate=0.5," in out


@pytest.mark.parametrize("setting", ["cut_rat=0", "publishers=many", "is_ordered=1"])
def test_wrong_field_of_a_plan_is_refused(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "2", "--set", setting])
    assert "Invalid" in capsys.readouterr().err


def test_many_good_seeds_are_reported_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--start", "10", "--processes", "1"]) == 0
    assert "seeds 10 to 12: all good" in capsys.readouterr().out


def test_first_bad_seed_is_printed_as_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(30, monkeypatch)
    assert main(["--seeds", "100", "--processes", "1", "--no-shrink"]) == 1
    assert capsys.readouterr().out.endswith("  an event is lost\nreplay it: make sim SEED=30\n")


def test_plan_of_a_bad_seed_is_shrunk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(30, monkeypatch)
    assert main(["--seeds", "100", "--processes", "1"]) == 1
    out = capsys.readouterr().out
    plan, command = out.splitlines()[-4], out.splitlines()[-1]
    assert "publishers=1, " in plan
    assert "ephemerals=0, " in plan
    assert command.startswith('replay it: make sim SEED=30 SET="')


def test_all_failing_seeds_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_from(30, monkeypatch)
    assert main(["--seeds", "33", "--processes", "1", "--keep-going", "--no-shrink"]) == 1
    assert "3 of 33 seeds fail: 30 31 32" in capsys.readouterr().out


def test_long_list_of_problems_is_cut() -> None:
    text = describe(Verdict(FaultPlan(seed=1), [f"problem {number}" for number in range(12)], 1, 1))
    assert "problem 9" in text
    assert "problem 10" not in text
    assert "and 2 more" in text


def test_one_seed_and_many_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--seeds", "2"])


def test_a_whole_fabric_is_replayed_with_a_changed_plan(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "nodes=2", "--set", "publishers=1", "--set", "run_s=0.5"]
    assert main(["--fabric", "--seed", "3", "--quiet", *settings]) == 0
    out = capsys.readouterr().out
    assert "FabricPlan(seed=3, nodes=2," in out
    assert "accounted for" in out
