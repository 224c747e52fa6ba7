"""check_policy names the fault of every policy that has one."""

import gc
import inspect
import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.testing import PolicyFault, check_policy


class Agents(fb.AgentSide):
    """An honest federated policy, to be spoilt: epsilon-greedy on its own means, which it also sends up."""

    def __init__(self, policy, view):
        self.policy, self.view, self.turn = policy, view, 0
        self.pulls, self.sums = np.zeros(view.psi.shape[:2]), np.zeros(view.psi.shape[:2])
        self.common = np.zeros(view.constants.num_arms)

    def plan(self, down, remaining):
        if down is not None:
            self.common = self.common + down["means"]
        n, num_arms = self.pulls.shape
        explore = np.zeros((n, num_arms), dtype=np.int64)
        explore[np.arange(n), self.random_arms()] = 1
        self.turn += 1
        return fb.Plan(explore, self.best(), 4)

    def random_arms(self):
        uniforms = self.view.randomness.draws(self.turn).uniforms()
        return (uniforms * self.pulls.shape[1]).astype(np.int64)

    def best(self):
        return (self.means() + 0.01 * self.common).argmax(axis=1)

    def means(self):
        return self.sums / self.pulls.clip(min=1)

    def report(self, feedback):
        self.pulls, self.sums = self.pulls + feedback.pulls(), self.sums + feedback.sums()
        return fb.Message("means", {"means": self.means()}, self.view.agents)


class Server(fb.ServerSide):
    def answer(self, up):
        return fb.Message("means", {"means": up["means"].mean(axis=0)})


class Spoilt(fb.Policy):
    """A policy made of the sides it is given."""

    def __init__(self, agents=Agents, server=Server):
        self.sides = agents, server

    def agents(self, view):
        return self.sides[0](self, view)

    def server(self, view):
        return self.sides[1]()


def fault(*sides, **keywords):
    with pytest.raises(PolicyFault) as caught:
        check_policy(Spoilt(*sides), **keywords)
    assert_refused(lambda: (_ for _ in ()).throw(caught.value))
    assert str(caught.value).startswith(caught.value.fault)
    return caught.value.fault, str(caught.value)


def test_an_honest_policy_has_no_fault():
    summary = check_policy(Spoilt())
    assert (
        "no fault found on hidden contexts, one agent, one arm, shared accounts, the same arms, resampled contexts"
        in summary
    )


def test_the_checker_is_public():
    assert "testing" in fb.__all__
    assert fb.testing.check_policy is check_policy
    assert issubclass(PolicyFault, fb.ProtocolError)


class TestRows:
    def test_an_average_over_agents(self):
        class Averages(Agents):
            def best(self):
                return np.full(len(self.sums), self.means().mean(axis=0).argmax())

        name, message = fault(Averages)
        assert name == "mixes rows"
        assert "in blocks [[0]" in message
        assert "plan.arm" in message

    def test_agents_as_a_matrix_dimension(self):
        class Multiplies(Agents):
            def best(self):
                mixed = self.means() @ np.linspace(0.1, 0.77, self.means().shape[1] ** 2).reshape(
                    self.means().shape[1], -1
                )
                return (mixed + 1e-16 * self.common).argmax(axis=1)

            def report(self, feedback):
                up = super().report(feedback)
                mixer = np.random.default_rng(0).random((self.pulls.shape[1],) * 2)
                return fb.Message("means", {"means": up["means"] @ mixer}, up.agents)

        # BLAS rounds rows differently in products of different sizes: only bits differ, and only they are compared.
        problem = {"many agents": fb.Synthetic(num_agents=33, num_arms=17)}
        one, many = np.random.default_rng(1).random((33, 17)), np.random.default_rng(0).random((17, 17))
        if np.array_equal((one @ many)[:1], one[:1] @ many):
            pytest.skip("this BLAS rounds all sizes alike")
        assert fault(Multiplies, problems=problem)[0] == "mixes rows"

    def test_the_order_of_the_rows(self):
        class Counts(Agents):
            def random_arms(self):
                return np.arange(len(self.sums)) % self.sums.shape[1]

        assert fault(Counts)[0] == "mixes rows"

    def test_random_numbers_shared_by_a_block(self):
        class OneDraw(Agents):
            def random_arms(self):
                return np.full(len(self.sums), super().random_arms()[0])

        assert fault(OneDraw)[0] == "mixes rows"

    def test_a_backdoor_between_blocks(self):
        class Gossips(Agents):
            def best(self):
                gossip = self.policy.__dict__.setdefault("gossip", {})
                gossip[self.view.agents[0]] = float(self.sums[0].max())
                return np.full(len(self.sums), int(100 * max(gossip.values())) % self.sums.shape[1])

        assert fault(Gossips)[0] == "mixes rows"

    def test_a_backdoor_to_the_server(self):
        class Whispers(Agents):
            def report(self, feedback):
                self.policy.secret = feedback.sums().sum(axis=0)
                return super().report(feedback)

            def best(self):
                told = getattr(self.policy, "told", np.zeros(self.sums.shape[1]))
                return (self.means() + told).argmax(axis=1)

        class Listens(fb.Policy):
            def agents(self, view):
                return Whispers(self, view)

            def server(self, view):
                policy = self

                class Listening(Server):
                    def answer(self, up):
                        policy.told = policy.secret
                        return super().answer(up)

                return Listening()

        with pytest.raises(PolicyFault) as caught:
            check_policy(Listens())
        assert caught.value.fault in ("mixes rows", "crashes")


class TestMessages:
    def test_writing_to_what_came(self):
        class Scribbles(Agents):
            def plan(self, down, remaining):
                if down is not None:
                    down["means"][0] = 1
                return super().plan(down, remaining)

        name, message = fault(Scribbles)
        assert name == "mutates what it was given"
        assert "Scribbles.plan" in message

    def test_forcing_a_write_to_what_came(self):
        class Forces(Server):
            def answer(self, up):
                up["means"].setflags(write=True)
                up["means"][:] = 0
                return super().answer(up)

        name, message = fault(Agents, Forces)
        assert name == "mutates a message"
        assert "Forces.answer" in message

    def test_changing_a_message_after_sending_it(self):
        class Regrets(Agents):
            sent = None

            def report(self, feedback):
                if self.turn == 3:
                    REGRETTED.append(super().report(feedback))
                    return REGRETTED[-1]
                return super().report(feedback)

            def plan(self, down, remaining):
                if self.turn == 4 and REGRETTED:
                    means = REGRETTED.pop()["means"]
                    means.setflags(write=True)
                    means[:] += 1
                return super().plan(down, remaining)

        REGRETTED = []
        name, message = fault(Regrets)
        assert name == "mutates a message"
        assert "Regrets.report" in message

    def test_nan(self):
        class Undefined(Agents):
            def means(self):
                with np.errstate(invalid="ignore"):
                    return self.sums / self.pulls

            def best(self):
                return np.nan_to_num(self.means()).argmax(axis=1)

        name, message = fault(Undefined)
        assert name == "NaN in a message"
        assert "'means'" in message

    def test_nan_from_the_server(self):
        class Empty(Server):
            def answer(self, up):
                return fb.Message("means", {"means": np.full(up["means"].shape[1], np.nan)})

        name, message = fault(Agents, Empty)
        assert name == "NaN in a message"
        assert "Empty.answer" in message

    def test_rows_that_do_not_fit_the_agents(self):
        class Flat(Agents):
            def report(self, feedback):
                return fb.Message("means", {"means": self.means().mean(axis=0)[:-1]}, self.view.agents)

        assert fault(Flat)[0] == "wrong shape"

    def test_speaking_for_others(self):
        class Impostor(Agents):
            def report(self, feedback):
                super().report(feedback)
                everyone = np.arange(self.view.constants.num_agents)
                return fb.Message("means", {"means": np.zeros((len(everyone), self.sums.shape[1]))}, everyone)

        name, message = fault(Impostor)
        assert name == "breaks the protocol"
        assert "different agents" in message

    def test_what_is_not_a_message(self):
        class Talks(Agents):
            def report(self, feedback):
                return "hello"

        assert fault(Talks)[0] == "breaks the protocol"

    def test_a_report_without_a_server(self):
        class Alone(fb.Policy):
            def agents(self, view):
                return Agents(self, view)

        with pytest.raises(PolicyFault, match=r"breaks the protocol .* define Policy\.server"):
            check_policy(Alone())


class TestPlans:
    def test_never_pulling(self):
        class Lazy(Agents):
            def plan(self, down, remaining):
                return fb.Plan.wait(*self.pulls.shape)

        assert fault(Lazy)[0] == "never pulls"

    def test_wrong_shapes(self):
        class Wide(Agents):
            def plan(self, down, remaining):
                plan = super().plan(down, remaining)
                return fb.Plan(plan.explore.T.copy(), plan.arm, plan.length)

        assert fault(Wide)[0] == "wrong shape"

    def test_plans_for_all_agents_in_a_block_of_some(self):
        class Everyone(Agents):
            def plan(self, down, remaining):
                constants = self.view.constants
                return fb.Plan.play(np.zeros(constants.num_agents, dtype=np.int64), constants.num_arms)

        name, message = fault(Everyone)
        assert name == "wrong shape"
        assert "expected explore (1, 4) and arm (1,)" in message

    def test_pulling_too_many(self):
        class Greedy(Agents):
            def plan(self, down, remaining):
                plan = super().plan(down, remaining)
                return fb.Plan(plan.explore + 1, plan.arm, 1)

        name, message = fault(Greedy)
        assert name == "pulls too many"
        assert "length = 1" in message

    def test_what_is_not_a_plan_is_blamed_on_its_author(self):
        class Bare(Agents):
            def plan(self, down, remaining):
                return super().plan(down, remaining).arm

        name, message = fault(Bare)
        assert name == "breaks the protocol"
        assert "Bare.plan: expected a Plan, got ndarray" in message

    def test_a_length_for_each_agent(self):
        class Ragged(Agents):
            def plan(self, down, remaining):
                plan = super().plan(down, remaining)
                return fb.Plan(plan.explore, plan.arm, np.full(len(plan.arm), plan.length))

        name, message = fault(Ragged)
        assert name == "breaks the protocol"
        assert "plan.length: expected a whole number" in message

    def test_arms_that_do_not_exist(self):
        class Outside(Agents):
            def best(self):
                return super().best() + 1

        name, message = fault(Outside)
        assert name == "breaks the protocol"
        assert "plan.arm" in message

    def test_a_crash_on_a_corner_case(self):
        class Second(Agents):
            def best(self):
                return np.argsort(self.means(), axis=1)[:, 1]

        name, message = fault(Second)
        assert name == "crashes"
        assert "one agent, one arm" in message
        assert "IndexError" in message

    def test_a_crash_at_the_start(self):
        class Broken(Agents):
            def __init__(self, policy, view):
                raise RuntimeError("no luck")

        assert fault(Broken)[0] == "crashes"

    def test_a_side_that_was_not_returned(self):
        class NoAgents(fb.Policy):
            def agents(self, view):
                pass

        class NoServer(fb.Policy):
            def agents(self, view):
                return Agents(self, view)

            def server(self, view):
                pass

        for policy, words in ((NoAgents(), "agents: expected an AgentSide"), (NoServer(), "server: expected a Server")):
            with pytest.raises(fb.testing.PolicyFault, match=words) as caught:
                fb.testing.check_policy(policy)
            assert caught.value.fault == "breaks the protocol"
            assert "got None; return one" in str(caught.value)


def outside(name):
    """What a policy finds by climbing the stack: the first local called `self` that has an attribute of this name."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if not isinstance(owner, fb.AgentSide) and hasattr(owner, name):
            return getattr(owner, name)
        frame = frame.f_back
    raise LookupError(name)


class TestTruth:
    def test_climbing_the_stack_to_the_true_means(self):
        class Climbs(Agents):
            def best(self):
                return outside("bandit").instance.means[self.view.agents].argmax(axis=1)

        name, message = fault(Climbs)
        assert name == "reads the truth"
        assert "another hidden truth" in message

    def test_the_law_of_the_rewards(self):
        class Lawless(Agents):
            def best(self):
                return outside("bandit").episode._law.means[self.view.agents].argmax(axis=1)

        assert fault(Lawless)[0] == "reads the truth"

    def test_hidden_contexts_alone(self):
        class Peeks(Agents):
            def best(self):
                contexts = outside("bandit").instance.contexts
                seen = 0 if contexts is None else contexts[self.view.agents].sum(axis=1)
                return np.broadcast_to(1e6 * seen, len(self.sums)).astype(np.int64) % self.sums.shape[1]

        assert fault(Peeks)[0] == "reads the truth"

    def test_searching_the_memory(self):
        class Searches(Agents):
            def __init__(self, policy, view):
                super().__init__(policy, view)
                gc.collect()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # looking at everything wakes deprecated attributes
                    found = [thing for thing in gc.get_objects() if type(thing) is fb.BanditInstance]
                mine = [it for it in found if it.psi.shape[0] == view.constants.num_agents]
                mine = [it for it in mine if np.array_equal(it.psi[view.agents], view.psi)]
                self.truth = mine[-1].means[view.agents]

            def best(self):
                return self.truth.argmax(axis=1)

        assert fault(Searches, horizon=12)[0] == "reads the truth"

    def test_a_policy_that_observes_the_context_may_use_it_but_not_theta(self):
        class Exact(Spoilt):
            observes = "context"

        class Theta(Agents):
            def best(self):
                return np.einsum("nad,ad->na", self.view.psi, outside("bandit").instance.theta).argmax(axis=1)

        class Context(Agents):
            def best(self):
                return (self.means() + self.view.psi.sum(axis=2)).argmax(axis=1)

        assert "no fault" in check_policy(Exact(Context))
        with pytest.raises(PolicyFault, match="reads the truth"):
            check_policy(Exact(Theta))

    def test_a_policy_that_observes_the_truth_may_use_it(self):
        class Knows(Spoilt):
            observes = "truth"

        class Uses(Agents):
            def best(self):
                return self.view.truth.argmax(axis=1)

        assert "no fault" in check_policy(Knows(Uses))


class TestState:
    def test_state_that_is_not_plain(self):
        class Lists(Agents):
            def __init__(self, policy, view):
                super().__init__(policy, view)
                self.log = []

        name, message = fault(Lists)
        assert name == "state is not plain"
        assert "Lists.log" in message

    def test_a_snapshot_of_its_own_that_is_not_plain(self):
        class Objects(Agents):
            def snapshot(self):
                return super().snapshot() | {"more": {"numbers": {1, 2}}}

        name, message = fault(Objects)
        assert name == "state is not plain"
        assert "numbers" in message

    def test_forgetting(self):
        class Forgets(Agents):
            def snapshot(self):
                return {name: value for name, value in super().snapshot().items() if name != "sums"}

        assert fault(Forgets)[0] == "loses state"

    def test_a_server_that_forgets(self):
        class Counting(Server):
            count = 0

            def answer(self, up):
                self.count += 1
                return fb.Message("means", {"means": up["means"].mean(axis=0) * self.count})

            def snapshot(self):
                return {}

        assert fault(Agents, Counting)[0] == "loses state"

    def test_two_names_for_one_array(self):
        class Aliases(Agents):
            def __init__(self, policy, view):
                super().__init__(policy, view)
                self.same = self.seen = np.zeros(self.sums.shape)

            def report(self, feedback):
                self.same += feedback.sums()
                return super().report(feedback)

            def best(self):
                return (64 * self.seen[:, 0]).astype(np.int64) % self.seen.shape[1]

        assert fault(Aliases)[0] == "loses state"

    def test_state_in_the_policy(self):
        class Elsewhere(Agents):
            def random_arms(self):
                self.policy.turns = getattr(self.policy, "turns", 0) + 1
                return np.full(len(self.sums), self.policy.turns // 3 % self.sums.shape[1])

        assert fault(Elsewhere)[0] == "loses state"

    def test_randomness_of_its_own(self):
        class Random(Agents):
            def random_arms(self):
                return np.random.default_rng().integers(self.sums.shape[1], size=len(self.sums))

        name, message = fault(Random)
        assert name == "does not repeat"
        assert "view.randomness" in message

    def test_state_shared_by_all_runs(self):
        seen = {"largest": 0.0}

        class Global(Agents):
            def best(self):
                seen["largest"] = max(seen["largest"], float(self.sums.max()))
                return np.full(len(self.sums), int(10 * seen["largest"]) % self.sums.shape[1])

        assert fault(Global)[0] == "does not repeat"

    def test_writing_to_the_view(self):
        class Normalises(Agents):
            def __init__(self, policy, view):
                view.psi[:] /= 2
                super().__init__(policy, view)

        assert fault(Normalises)[0] == "mutates what it was given"


@dataclass(frozen=True)
class Parameters(fb.Policy):
    tries: int = 1
    extra: list = field(default_factory=list)

    def agents(self, view):
        return Agents(self, view)


def test_what_is_not_a_policy_is_refused():
    assert_refused(lambda: check_policy("Fed-PECD"), "expected a Policy, got 'Fed-PECD'", "make_policy")
    assert_refused(lambda: check_policy(Parameters), "expected a Policy")

    class Nosy(Spoilt):
        observes = "everything"

    assert_refused(lambda: check_policy(Nosy()), "Nosy.observes", "got 'everything'")
    assert_refused(lambda: check_policy(Spoilt(), horizon=0), "horizon")


def test_problems_can_be_chosen():
    summary = check_policy(Spoilt(), problems={"mine": fb.Linear()}, horizon=20)
    assert summary == "Spoilt: no fault found on mine"


@pytest.mark.parametrize("horizon", [1, 2, 9])
def test_short_horizons_are_checked_too(horizon):
    for name in ("Fed-PECD", "DisLinUCB"):
        assert "no fault" in check_policy(fb.make_policy(name), horizon=horizon)


def test_a_state_that_no_file_can_hold_is_not_plain():
    class Slashed(Agents):
        def snapshot(self):
            return super().snapshot() | {"a/b": 1}

    name, message = fault(Slashed)
    assert name == "state is not plain"
    assert "a/b" in message
