from threading import Thread

from advisor.measure.campaign.draw import idle_twin
from advisor.measure.campaign.task_queue import TaskQueue, needs_mps
from advisor.measure.shared.planned_run import PlannedMix
from advisor.sharing import Mps, Naive
from advisor.workload.named_workloads import workload

PAIR = (workload("mlp-toy-bs32"), workload("mlp-toy-bs64"))


def mix(name, sharing=None, purpose="drawn"):
    return PlannedMix(
        id=name, sharing=sharing or Naive(), purpose=purpose, repeats=None, workloads=PAIR
    )  # fmt: skip


def many(count):
    """Runs with and without MPS by turns."""
    return [mix(f"run-{n}", Mps() if n % 2 else Naive()) for n in range(count)]


def queue(tasks, idle_controls=(), homes=None, runners=("0", "1")):
    return TaskQueue(tasks, idle_controls, homes or {}, runners)


def drained(one, *runners):
    """Which runner did what, each taking its turn until nothing is left."""
    did = []
    while blocks := [(runner, block) for runner in runners if (block := one.take(runner))]:
        for runner, block in blocks:
            for task in block:
                did.append((runner, task))
                one.done(task, runner)
    return did


def test_a_runner_gets_some_runs_in_a_row_that_need_mps_in_one_state():
    block = queue(many(100)).take("0")
    assert len(block) == 8
    assert len({needs_mps(task) for task in block}) == 1


def test_no_run_waits_long_for_its_turn_and_none_is_done_twice():
    tasks = many(100)
    did = [task for _, task in drained(queue(tasks, runners=["0"]), "0")]
    assert sorted(task.id for task in did) == sorted(task.id for task in tasks)
    assert all(abs(did.index(task) - number) <= 24 for number, task in enumerate(tasks))


def test_towards_the_end_nobody_takes_more_than_a_share():
    left = queue(many(6))
    assert len(left.take("0")) == 1


def test_what_a_lost_runner_had_is_done_before_all_else():
    one = queue(many(40))
    block = one.take("0")
    one.back(block)
    one.leave("0")
    assert one.take("1")[0] == block[0]


def test_a_runner_without_work_waits_for_what_another_may_hand_back():
    one = queue(many(2))
    first, second = one.take("0"), one.take("1")
    got = []
    waiting = Thread(target=lambda: got.append(one.take("1")))
    one.done(second[0], "1")
    waiting.start()
    one.back(first)
    waiting.join(30)
    assert got == [first]


def test_quiet_controls_come_last_one_at_a_time_and_where_their_twins_were():
    busy = [mix(f"c-{n}-busy", purpose="control") for n in (1, 2)]
    idle_controls = [mix(idle_twin(each.id), purpose="control") for each in busy]
    one = queue([*busy, *many(2)], idle_controls)
    for _ in range(4):
        (task,) = one.take("0")
        assert task not in idle_controls
        one.done(task, "0")
    (first,) = one.take("0")
    got = []
    waiting = Thread(target=lambda: got.append(one.take("1")))
    waiting.start()
    one.done(first, "0")
    (second,) = one.take("0")
    one.done(second, "0")
    waiting.join(30)
    assert got == [[]]
    assert [first, second] == idle_controls


def test_a_quiet_control_whose_runner_is_gone_is_done_by_another():
    idle_controls = mix("c-1-idle", purpose="control")
    one = queue([], [idle_controls], {"c-1-idle": "0"})
    one.leave("0")
    assert one.take("1") == [idle_controls]
    after_a_restart = queue([], [idle_controls], {"c-1-idle": "a device of yesterday"})
    assert after_a_restart.take("1") == [idle_controls]


def test_a_closed_board_gives_nothing_and_says_what_is_left():
    one = queue(many(40))
    one.take("0")
    one.close()
    assert one.take("1") == []
    assert one.left == 32
