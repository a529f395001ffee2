"""The view of a job from one of its members."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NoReturn

import numpy as np
from gymnasium import spaces
from rltraining_api.algorithms.replay import Replay as ReplaySettings
from rltraining_api.contract import RENDEZVOUS_PATH, STATUS_PATH, LearnerReport
from rltraining_api.job import JobSpec
from rltraining_api.names import ROLES, Role, parse_pod_name, pod_name
from torch import Tensor

from rltraining_trainer.environments import Faults, Stepper, StepperStats, make_environments, make_spaces
from rltraining_trainer.errors import TrainerError, UserCodeError
from rltraining_trainer.group import LearnerGroup, SingleLearnerGroup
from rltraining_trainer.metrics import Numbers
from rltraining_trainer.networks import (
    ActorCritic,
    Distribution,
    PolicyNetwork,
    build_actor_critic,
)
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.link import FAREWELL
from rltraining_trainer.roles.live_spec import LiveSpec
from rltraining_trainer.roles.scrape import scraped, stepped
from rltraining_trainer.transport import Endpoint, Handler, MemberServer, Payload, Stopped
from rltraining_trainer.world.directory import Directory
from rltraining_trainer.world.members import CALL, SHARED, Member, Members
from rltraining_trainer.world.replay import LearnerReplay, Replay, SamplerReplay
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.run import Run, Stateful, experience_of
from rltraining_trainer.world.services import Services
from rltraining_trainer.world.shared import SharedValues
from rltraining_trainer.world.trajectories import (
    LearnerTrajectories,
    SamplerTrajectories,
    Trajectories,
)


class World:
    """This member, and its access to all other members.

    First call `register`, then `run` in a learner or `start` in a sampler. Then you can call any
    member. Every blocking method raises Stopped when this process should end or the run is done. Do
    not catch this exception.
    """

    def __init__(self, context: Context, fail: Callable[[TrainerError], None]) -> None:
        """For the trainer: ``fail`` ends the process after an exception in a user's handler."""
        job = context.job
        place = parse_pod_name(job.metadata.name, context.pod)
        assert place is not None, "the operator names pods by role and index"
        self.name = context.pod
        """Name of this member, such as ``cartpole-sampler-3``."""
        self.role: Role = place[0]
        self.index = context.index
        """Index within the role, from 0."""
        self.spec: JobSpec = job.spec
        """The job's ``spec``, with all defaults filled in."""
        self.parameters: Mapping[str, Any] = getattr(job.spec.algorithm.parameters, "parameters", {})
        """``spec.algorithm.entryPoint.parameters``, unchanged."""
        self.seed = _seed(job.spec.seed, self.role, self.index)
        """This member's seed of 31 bits, derived from ``spec.seed``. torch is seeded with it."""
        self.stopping: threading.Event = context.stopping
        """Set when this process should end, or the run is done."""
        self._context = context
        self._live = LiveSpec(context.job_file, job.spec)
        self._job = job.metadata.name
        self._started = self._done = False
        self._members: dict[str, Member] = {}
        self._services = Services(self.name, fail)
        self._directory = Directory(context, lambda: self._endpoint, self._end)
        self._run: Run | None = None
        self._reporter: Reporter | None = None
        if self.role == "learner":
            first = pod_name(self._job, "learner", 0)
            parts = (context, self._live, self._services)
            self._run = Run(*parts, lambda: self._endpoint, lambda: self.member(first))
        group = self._run.group.services if self._run is not None else {}
        services = {CALL: self._services.answer, **self._directory.services, **group}
        self._endpoint = Endpoint(self.name, context.token, services)
        if self.role == "sampler":
            learner = self.member(pod_name(self._job, "learner", 0))
            self._reporter = Reporter(learner, self._origin, self.stopping)
        self._shared = SharedValues(self._endpoint.incarnation)
        self._services.add(SHARED, self._shared.answer)
        documents = {}
        if (run := self._run) is not None:
            documents = {RENDEZVOUS_PATH: self._rendezvous, STATUS_PATH: lambda: run.report().to_dict()}
        self._stepped: list[StepperStats] = []
        self._http = MemberServer(
            context.http_port,
            context.token,
            ready=self._directory.attached.is_set,
            documents=documents,
            metrics=scraped(context, self.role, self._numbers),
            host=context.http_host,
        )

    def members(self, role: Role) -> Members:
        """Returns all members of a role, dead or alive, including this member.

        The length of the sequence is the present number of replicas in the spec.
        """

        def count() -> int:
            if role != "sampler":
                return self.spec.replicas(role)
            self._live.look(time.monotonic())
            return self._live.samplers

        return Members(count, lambda index: self.member(pod_name(self._job, role, index)))

    def member(self, name: str) -> Member:
        """Returns the member with this name, such as the caller in a handler.

        Raises KeyError if the job has no such member.
        """
        if (member := self._members.get(name)) is None:
            place = parse_pod_name(self._job, name)
            if place is None or (place[0] != "sampler" and place[1] >= self.spec.replicas(place[0])):
                raise KeyError(f"no member of job {self._job!r} is called {name!r}")
            member = self._members.setdefault(name, Member(name, *place, self._directory, self.stopping))
        return member

    def register(self, service: str, handler: Handler) -> None:
        """Answers calls to ``service`` with ``handler(caller's name, payload)``.

        Call this before `start` or `run`. Each service has a thread: the calls to one service run
        one after another, and a handler may call members. It returns tensors and plain values, or a
        `DeferredReply` that you resolve later. If the caller dies meanwhile, the answer is discarded. If
        this member dies, its next incarnation is called again. If the handler raises an exception,
        the job fails with the traceback.
        """
        if self._started:
            raise RuntimeError(f"register {service!r} before world.start() or world.run()")
        self._services.add_own(service, handler)

    def share(self, name: str, value: Payload) -> int:
        """Shares a copy of ``value`` with all members. They read it with `Member.shared`.

        Returns the version of the value. The value is lost when this process ends: share it again
        when your function starts. Raises TypeError if ``value`` contains anything but tensors and
        plain values.
        """
        return self._shared.share(name, value)

    def environments(self, count: int | None = None) -> Stepper:
        """Returns ``count`` (None: ``numEnvs``) environments of the spec, stepped together.

        An exception in an environment ends the job as a UserCodeError with the traceback, unless
        ``spec.environment.onError`` is Reset.
        """
        environment = self.spec.environment
        environments = make_environments(environment, count or environment.num_envs)
        stepper = Stepper(environments, environment.id, Faults.of(environment))
        self._stepped.append(stepper.stats)
        return stepper

    @cached_property
    def spaces(self) -> tuple[spaces.Space, spaces.Space]:
        """Spaces of one observation and of one action."""
        return make_spaces(self.spec.environment)

    def actor_critic(self) -> tuple[ActorCritic, Distribution]:
        """Returns a new network of the spec, with policy and value heads, and its distribution.

        Raises BadConfiguration if the network does not fit the environment.
        """
        return build_actor_critic(self.spec.network, *self.spaces, normalize=self.spec.environment.normalize)

    def replay(
        self,
        *,
        capacity: int,
        batch_size: int,
        minimum: int = 1,
        samples_per_insert: float | None = None,
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        kind: Literal["Prioritized", "Uniform"] = "Prioritized",
    ) -> Replay:
        """Returns the job's distributed replay (see `Replay`).

        Call this with the same arguments in ``learner(world)`` before `run`, and in
        ``sampler(world)`` before `start`.

        Args:
            capacity: number of items in all samplers together. Each sampler has an equal part.
            batch_size: number of items in a batch.
            minimum: number of insertions before the first sample.
            samples_per_insert: how often an item is sampled on average. Learner and samplers wait
                for each other to keep this ratio. None: neither waits.
            priority_exponent: α of the probabilities p^α / Σ p^α.
            importance_exponent: β of the weights.
            kind: Uniform samples all items with the same probability.

        Raises:
            ValueError: an argument is out of its range.
            UserCodeError: the job has several learners.
        """
        settings = ReplaySettings(
            capacity=capacity,
            minimum=minimum,
            samples_per_insert=samples_per_insert,
            priority_exponent=priority_exponent,
            importance_exponent=importance_exponent,
            kind=kind,
        )
        if len(self._context.learners) > 1:
            raise UserCodeError("world.replay() is for one learner: set spec.learner.replicas to 1")
        if self._reporter is not None:
            samplers = max(1, len(self.members("sampler")))
            return SamplerReplay(
                settings,
                -(-capacity // samplers),
                seed=self.seed,
                services=self._services,
                reporter=self._reporter,
            )
        run = self._learner_run("replay")
        replay = LearnerReplay(
            settings,
            batch_size,
            seed=self.seed,
            item_bytes=2 * _bytes(self.spaces[0]),  # an observation and the next observation
            endpoint=lambda: self._endpoint,
            reports=run.reports,
            stopping=self.stopping,
        )
        run.add_path("replay", replay)
        return replay

    def trajectories(self, capacity: int = 1) -> Trajectories:
        """Returns a bounded queue from samplers to learners (see `Trajectories`).

        Each learner has a queue for its share of the samplers. Call this in ``learner(world)``
        before `run`, and in ``sampler(world)`` before `start`.

        Args:
            capacity: number of items that are accepted before they are used. A full queue blocks
                the samplers. With 0 an item is accepted when the learner requests the next item.
        """
        if self._reporter is not None:
            learners = self.members("learner")
            return SamplerTrajectories(learners[self.index % len(learners)], self._endpoint.incarnation)
        run = self._learner_run("trajectories")
        trajectories = LearnerTrajectories(capacity, self.stopping)
        run.add_path("trajectories", trajectories)
        for service, handler in trajectories.services.items():
            self._services.add(service, handler)
        return trajectories

    def count(
        self, steps: int, returns: Tensor | Sequence[float] = (), *, episodes: int | None = None
    ) -> None:
        """In a sampler: counts environment steps and episodes of the run, each exactly once.

        Args:
            steps: number of environment steps, at least 0.
            returns: ``[K]`` undiscounted returns of the episodes that ended in these steps, for the
                stop rules.
            episodes: number of episodes that ended, if some of them have no return here.

        Raises:
            RuntimeError: this is a learner. Use `Run.update` there.
            TypeError, ValueError: ``steps`` or ``episodes`` is not a count.
        """
        if self._reporter is None:
            raise RuntimeError("world.count() is for samplers: a learner counts with run.update()")
        experience = experience_of(steps, returns, episodes)
        self._reporter.count(experience.steps, experience.episodes, experience.returns)

    @property
    def group(self) -> LearnerGroup | SingleLearnerGroup:
        """In a learner: the group of live learners, for collectives. `Run.goes_on` forms the group.

        If a learner dies, collectives of the others raise GroupChanged: discard the update and call
        `goes_on`, which forms a new group. Raises RuntimeError in a sampler.
        """
        if self._run is None:
            raise RuntimeError("only learners are in a group")
        return self._run.group

    @property
    def done(self) -> bool:
        """Whether the run is done."""
        return self._done

    def start(self) -> None:
        """Lets other members call this member. Does not wait for a connection to any member."""
        if self._started:
            raise RuntimeError("this member was started before")
        self._started = True
        self._endpoint.start()
        self._http.start()
        self._directory.start()
        if self._reporter is not None:
            self._reporter.start()

    def run(self, policy: PolicyNetwork | None = None, **state: Stateful) -> Run:
        """Starts this learner, and starts the run or continues it from the newest checkpoint.

        Args:
            policy: the network to train, from `actor_critic`. It is part of the state, and exported
                at the end of the run. None: no policy is exported.
            state: further objects for checkpoints. Each needs ``state_dict()`` and
                ``load_state_dict()``, as optimizers have, with tensors and plain values.

        Raises:
            BadConfiguration: the newest checkpoint is of another algorithm.
            RuntimeError: this is a sampler.
        """
        if self._run is None:
            raise RuntimeError("world.run() is for learners: a sampler has world.start()")
        self._run.begin(policy, state, self.spaces)
        self.start()
        return self._run

    def serve(self) -> NoReturn:
        """Answers calls until the run is done or this process should end. Raises Stopped."""
        self.stopping.wait()
        raise Stopped("asked to end")

    def finish(self) -> None:
        """For the trainer: ends this member after the function has returned.

        A learner ends the run for all members. A sampler answers calls until then, then raises
        Stopped.
        """
        if self._run is None:
            if not self._started:
                self.start()
            self.serve()
        if not self._started:
            raise UserCodeError("learner(world) returned before it began the run: call world.run() in it")
        self._run.finish()
        self._directory.finish()
        time.sleep(FAREWELL)

    def save(self) -> None:
        """For the trainer: writes a learner's checkpoint in the background."""
        if self._run is not None and self._started:
            self._run.save()

    def report(self) -> LearnerReport | None:
        """For the trainer: returns a learner's report."""
        return self._run.report() if self._run is not None else None

    def close(self) -> None:
        """For the trainer: ends connections and threads."""
        self.stopping.set()  # ends blocked handlers
        self._services.close()
        self._directory.close()
        if self._reporter is not None:
            self._reporter.close()
        if self._run is not None:
            self._run.close()
        self._http.stop()
        self._endpoint.stop()

    def _learner_run(self, method: str) -> Run:
        if self._run is None:
            raise RuntimeError(f"world.{method}() is for learners and samplers")
        return self._run

    def _origin(self) -> tuple[str, str]:
        return self._endpoint.incarnation, self._endpoint.url

    def _end(self) -> None:
        self._done = True
        self.stopping.set()

    def _numbers(self) -> Numbers:
        """Returns the metrics for Prometheus. Called from the HTTP server's threads."""
        return self._run.numbers() if self._run is not None else stepped(tuple(self._stepped))

    def _rendezvous(self) -> dict[str, Any]:
        return {"url": self._endpoint.url, "incarnation": self._endpoint.incarnation}


def _bytes(space: spaces.Space) -> int:
    """Returns the size of one element in bytes, or 0 if it is not a single array."""
    if space.shape is None or space.dtype is None:
        return 0
    return math.prod(space.shape) * space.dtype.itemsize


def _seed(seed: int, role: Role, index: int) -> int:
    return int(np.random.SeedSequence([seed, ROLES.index(role), index]).generate_state(1)[0] >> 1)
