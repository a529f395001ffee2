"""The view of a job from one of its members."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn
from weakref import WeakSet

import torch
from gymnasium import spaces
from rltraining_api.contract import RENDEZVOUS_PATH, STATUS_PATH, LearnerReport, Warning
from rltraining_api.job import JobSpec
from rltraining_api.names import ROLES, Role, parse_pod_name, pod_name
from torch import Tensor

from rltraining_trainer.dataflow import WANTS_NONE
from rltraining_trainer.environments import (
    Stepper,
    StepperStats,
    close_environments,
    make_environments,
    make_spaces,
)
from rltraining_trainer.environments.episode_seeds import seed_of
from rltraining_trainer.errors import TrainerError, UserCodeError
from rltraining_trainer.group import LearnerGroup, SingleLearnerGroup
from rltraining_trainer.metrics import Numbers, exposition
from rltraining_trainer.networks import ActorCritic, Distribution, PolicyNetwork, build_actor_critic
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.discards import discard_fields
from rltraining_trainer.roles.scrape import kept_numbers, linked, stepped
from rltraining_trainer.roles.seeds import sampler_seed
from rltraining_trainer.roles.spec_watcher import SpecWatcher
from rltraining_trainer.transport import Endpoint, Handler, MemberServer, Payload, Stopped
from rltraining_trainer.world.checked_stats import checked_stats
from rltraining_trainer.world.data_paths import DataPaths
from rltraining_trainer.world.directory import Directory
from rltraining_trainer.world.members import CALL, SHARED, Member, Members
from rltraining_trainer.world.reporter import REPORT, Reporter
from rltraining_trainer.world.run import Run
from rltraining_trainer.world.run_state import Algorithm, Stateful
from rltraining_trainer.world.services import Services
from rltraining_trainer.world.session import LINGER_SECONDS, Connections
from rltraining_trainer.world.shared import SharedValues

_LOG = logging.getLogger(__name__)


class World(DataPaths):
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
        self.learners = len(context.learners)
        """Number of learners."""
        self.spec: JobSpec = job.spec
        """The job's ``spec``, with all defaults filled in."""
        self.settings: Any = job.spec.algorithm.parameters
        """The settings of the algorithm, a model of ``rltraining_api.algorithms``."""
        self.parameters: Mapping[str, Any] = getattr(self.settings, "parameters", {})
        """``spec.algorithm.entryPoint.parameters``, unchanged."""
        self.seed = seed_of(job.spec.seed, ROLES.index(self.role), self.index)
        """This member's seed of 31 bits, derived from ``spec.seed``. torch is seeded with it."""
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        """The learner's device."""
        self.stopping: threading.Event = context.stopping
        """Set when this process should end, or the run is done."""
        self._context = context
        self._live = SpecWatcher(context.job_file, job.spec)
        self._job = job.metadata.name
        self._started = self._done = False
        self._members: dict[str, Member] = {}
        self._services = Services(self.name, fail)
        self._endpoint = Endpoint(self.name, context.token)
        self._directory = Directory(context, self._endpoint, self._end)
        self._connections = Connections(context, self._endpoint, self._discards, self._end, started=False)
        self._calls_members = job.spec.algorithm.entry_point is not None or self.role == "learner"
        self._path, self._names = None, set()
        self._reporter = Reporter(self._connections)
        self._shards = []
        self._stats: list[StepperStats] = []
        self._steppers: WeakSet[Stepper] = WeakSet()
        self._kept = []
        self._run = None
        if self.role == "learner":
            device = torch.device("cpu") if job.spec.algorithm.entry_point is not None else self.device
            self._run = Run(context, self._live, self._endpoint, self._first(), device)
        self._shared = SharedValues(self._endpoint.incarnation)
        self._services.add(SHARED, self._shared.answer)
        documents = {RENDEZVOUS_PATH: self._rendezvous} if self.role != "sampler" else {}
        if (run := self._run) is not None:
            documents[STATUS_PATH] = lambda: run.report().to_dict()
        self._http = MemberServer(
            context.http_port,
            context.token,
            ready=self._is_ready,
            documents=documents,
            metrics=exposition({"role": self.role, "algorithm": job.spec.algorithm.name}, self._numbers),
            host=context.http_host,
            encrypted=context.tls_port is not None,
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

        Call this before `start`, which begins to answer probes: creating simulators may block all threads.
        An exception in an environment ends the job as a UserCodeError with the traceback, unless
        ``spec.environment.onError`` is Reset.
        """
        environment = self.spec.environment
        environments = make_environments(environment, count or environment.num_envs)
        stepper = Stepper.of(self.spec, environments, self.__dict__.get("spaces"))
        self._stats.append(stepper.stats)
        self._steppers.add(stepper)
        if self.spec.algorithm.entry_point is None:
            assert not self._started, "it would not answer probes meanwhile"
            self._kept.append(stepper)  # a built-in algorithm uses it until the end, where it is closed
        return stepper

    @cached_property
    def spaces(self) -> tuple[spaces.Space, spaces.Space]:
        """Spaces of one observation and of one action."""
        return make_spaces(self.spec.environment)

    @property
    def total_steps(self) -> int | None:
        """Environment steps at which schedules end."""
        return self.spec.stop.environment_steps

    def actor_critic(self) -> tuple[ActorCritic, Distribution]:
        """Returns a new network of the spec, with policy and value heads, and its distribution.

        Raises BadConfiguration if the network does not fit the environment.
        """
        return build_actor_critic(self.spec.network, *self.spaces, normalize=self.spec.environment.normalize)

    def count(
        self,
        steps: int,
        returns: Tensor | Sequence[float] = (),
        *,
        episodes: int | None = None,
        moments: Sequence[Tensor] = (),
    ) -> None:
        """In a sampler: counts environment steps and episodes of the run, each exactly once.

        Args:
            steps: number of environment steps, at least 0.
            returns: ``[K]`` undiscounted returns of the episodes that ended in these steps, for the
                stop rules.
            episodes: number of episodes that ended, if some of them have no return here.
            moments: moments of observations, each ``[U, 1 + 2·d]`` (see `Run.take_moments`).

        Raises:
            RuntimeError: this is a learner. Use `Run.update` there.
            TypeError, ValueError: ``steps`` or ``episodes`` is not a count.
        """
        if self._run is not None:
            raise RuntimeError("world.count() is for samplers: a learner counts with run.update()")
        stats = checked_stats(steps, returns, episodes)
        self._reporter.count(stats.steps, stats.episodes, stats.returns, moments)

    @property
    def group(self) -> LearnerGroup | SingleLearnerGroup:
        """In a learner: the group of live learners, for collectives. `Run.active` forms the group.

        If a learner dies, collectives of the others raise GroupChanged: discard the update and call
        `active`, which forms a new group. Raises RuntimeError in a sampler.
        """
        if self._run is None:
            raise RuntimeError("only learners are in a group")
        return self._run.group

    @property
    def done(self) -> bool:
        """Whether the run is done."""
        return self._done

    @property
    def version(self) -> int:
        """In a sampler: version of the parameters in the network that `start` was given."""
        return self._path.version if self._path is not None else WANTS_NONE

    def start(self, parameters: Tensor | None = None) -> int:
        """Starts this member: other members can call it.

        Args:
            parameters: in a sampler with a data path, `flatten_parameters` of the network that acts. It receives the learner's
                parameters now, and newer ones in each call of the path that sends data. None: does not wait for a connection.

        Returns:
            A seed for environments and exploration, with which torch is seeded too. It differs after each restart, so that
            episodes are not repeated. Without ``parameters`` it is `seed`.
        """
        if self._started:
            raise RuntimeError("this member was started before")
        self._started = self._connections.started = True
        # A session that is the only user of the endpoint starts it.
        path = self._path
        self._connections.alone = path is not None and path.alone and not self._calls_members
        if not self._connections.alone:
            # Handlers run on RPC threads: they must not wait 5 ms for this thread to release the interpreter.
            sys.setswitchinterval(0.0005)
            self._endpoint.serve({CALL: self._services.answer, **self._directory.services})
            self._endpoint.start()
        self._http.start()
        if self._calls_members:
            self._directory.start()
        # Get the first parameters.
        seed = self.seed
        if parameters is not None and path is not None:
            path.attach(parameters.detach())
            seed = sampler_seed(self.spec.seed, self.index, path.version)
            torch.manual_seed(seed)
        if self.role == "sampler" and not self._connections.alone:
            self._reporter.start()
        return seed

    def run(
        self, policy: PolicyNetwork | None = None, *, algorithm: Algorithm | None = None, **state: Stateful
    ) -> Run:
        """Starts this learner, and starts the run or continues it from the newest checkpoint.

        Args:
            policy: the network to train, from `actor_critic`. It is part of the state, and exported
                at the end of the run. None: no policy is exported.
            algorithm: instead of ``policy`` and ``state``: an object with the complete state (see `Algorithm`), whose
                parameters `Run.train` publishes.
            state: further objects for checkpoints. Each needs ``state_dict()`` and
                ``load_state_dict()``, as optimizers have, with tensors and plain values.

        Raises:
            BadConfiguration: the newest checkpoint is of another algorithm.
            RuntimeError: this is a sampler.
            TypeError: ``policy`` or ``state`` would not be saved, since there is an ``algorithm``.
        """
        if self._run is None:
            raise RuntimeError("world.run() is for learners: a sampler has world.start()")
        run, first = self._run, self.index == 0
        for path in run.paths.all():
            self._endpoint.serve(run.discards.watched(path.services))
            self._endpoint.direct |= path.sends_large
            for service, handler in path.member_services.items() if first else ():
                self._services.add(service, handler)
        self._endpoint.serve(run.group.services)
        if first:
            self._endpoint.serve(run.discards.watched(run.paths.reports.services))
            self._services.add(REPORT, run.discards.watch(run.paths.reports.report))
        run.begin(policy, state, self.spaces, algorithm)
        self.start()
        return run

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
            if not self._started and self._path is not None:
                raise UserCodeError(
                    f"{self.role}(world) returned before it sent data: call world.start(parameters) in it"
                )
            if not self._started:
                self.start()
            _LOG.info("%s(world) returned: this member answers calls until the run is done", self.role)
            self.serve()
        if not self._started:
            raise UserCodeError("learner(world) returned before it began the run: call world.run() in it")
        self._run.finish()
        self._directory.finish()
        time.sleep(LINGER_SECONDS)

    def save(self) -> None:
        """For the trainer: writes a learner's checkpoint in the background."""
        if self._run is not None and self._started:
            self._run.save()

    def report(self) -> LearnerReport | None:
        """For the trainer: returns a learner's report."""
        return self._run.report() if self._run is not None else None

    def close(self) -> tuple[Warning, ...]:
        """For the trainer: ends connections and threads. Returns a learner's warnings about its last writes."""
        interrupted = self.stopping.is_set()
        self.stopping.set()  # ends blocked handlers
        self._services.close()
        self._directory.close()
        self._reporter.close()
        warnings = () if self._run is None else self._run.close(interrupted=interrupted)
        for local in self._shards:
            local.close()
        if self._done:
            for stepper in self._steppers:
                close_environments(stepper.environments, stepper.name)
        self._http.stop()
        self._endpoint.stop()
        return warnings

    def _first(self) -> Member | None:
        """Returns learner 0, or None in learner 0."""
        return self.member(pod_name(self._job, "learner", 0)) if self.index > 0 else None

    def _discards(self) -> dict[str, Any]:
        """Returns the fields that report the discarded episodes of this sampler."""
        fields = (discard_fields(self.name, self._endpoint.incarnation, stats) for stats in self._stats)
        return next((found for found in fields if found), {})

    def _end(self) -> None:
        self._done = True
        self.stopping.set()

    def _is_ready(self) -> bool:
        return self._connections.attached and (self._directory.attached or not self._calls_members)

    def _numbers(self) -> Numbers:
        """Returns the metrics for Prometheus. Called from the HTTP server's threads."""
        if self._run is not None:
            return self._run.numbers()
        shard = kept_numbers(self._shards[0].shard) if self._shards else {}
        if self.role == "replay":
            return shard
        return {**stepped(self._stats), **linked(tuple(self._connections.sessions)), **shard}

    def _rendezvous(self) -> dict[str, Any]:
        document = {"url": self._endpoint.url, "incarnation": self._endpoint.incarnation}
        return document | ({"modelVersion": self._run.models.version} if self._run is not None else {})
