"""What a hook takes for a step, whatever optimizers a script has."""

from hypothesis import given
from hypothesis import strategies as st

from advisor.measure.process.script_hook import ScriptHook


class Counting(ScriptHook):
    """A hook whose steps are only counted."""

    def __init__(self):
        super().__init__({})
        self.ended = []

    def _step_ended(self):
        self.ended.append(self._step_ender)


rounds = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(rounds)
def test_once_a_round_of_all_optimizers_is_known_each_round_is_one_step(order):
    hook, optimizers = Counting(), [object() for _ in range(5)]
    for _ in range(4):
        for each in order:
            hook.optimizer_stepped(optimizers[each])
    hook.ended.clear()
    for done in range(1, 6):
        for each in order:
            hook.optimizer_stepped(optimizers[each])
        least = min(order.count(each) for each in set(order))
        assert len(hook.ended) == done * least


def test_an_optimizer_that_hardly_ever_steps_ends_no_step():
    hook, busy, seldom = Counting(), object(), object()
    hook.optimizer_stepped(seldom)
    for _ in range(500):
        hook.optimizer_stepped(busy)
    hook.ended.clear()
    hook.optimizer_stepped(seldom)
    hook.optimizer_stepped(busy)
    assert len(hook.ended) == 1


def test_steps_captured_into_a_graph_are_no_steps_until_it_is_replayed():
    hook, optimizer = Counting(), object()
    hook.capturing = captured = []
    hook.optimizer_stepped(optimizer)
    assert (captured, hook.ended) == ([optimizer], [])
    hook.capturing = None
    hook.optimizer_stepped(optimizer)
    assert len(hook.ended) == 1


def test_a_script_that_says_its_steps_itself_is_believed():
    hook, optimizer = Counting(), object()
    hook.stepped_explicitly()
    for _ in range(10):
        hook.optimizer_stepped(optimizer)
    assert len(hook.ended) == 1
    hook.stepped_explicitly()
    assert len(hook.ended) == 2
