"""KubernetesCluster and the engine over a misbehaving API server finally create each pod exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fake_api_server import FakeApiServer, Fault, until
from operator_world import SPEC
from rltraining_api.names import API_VERSION, KIND, PLURAL
from rltraining_operator.cluster import Event, Key, Ref
from rltraining_operator.engine import Engine, utc_now
from rltraining_operator.errors import ConflictError, NameTakenError, RejectedError, UnavailableError
from rltraining_operator.kube.cluster import KubernetesCluster, merge_patch
from rltraining_operator.kube.events import EventWriter
from rltraining_operator.kube.metrics import Metrics
from rltraining_operator.kube.reports import Reports
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.tokens import Tokens
from rltraining_operator.kube.watch import Watch
from rltraining_operator.observe.observed import Observed

KEY = Key("default", "demo")
JOB = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}/demo"
CORE = "/api/v1/namespaces/default"
PODS = [f"{CORE}/pods/demo-{name}" for name in ("learner-0", "sampler-0", "sampler-1")]


def job(name: str = "demo") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "generation": 1}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": SPEC}


def secret_of(server: FakeApiServer) -> dict[str, Any]:
    """Returns the Secret of the job."""
    (found,) = (each for path, each in server.objects.items() if f"{CORE}/secrets/demo-token-" in path)
    return found


class Scene:
    """One server and the core of one operator, without kopf: the resync finds the jobs."""

    def __init__(self, server: FakeApiServer, **options: Any) -> None:
        self.server, self.store, self.metrics = server, Store(), Metrics()
        api = server.api(request_seconds=0.5)
        self.events = EventWriter(api, utc_now, "here")
        self.cluster = KubernetesCluster(api, self.store, self.events, Reports(), self.metrics, **options)
        self.cluster.tokens = Tokens(b"k" * 32)
        self.engine = Engine(self.cluster, workers=8, resync_seconds=0.2, meter=self.metrics)
        self.watch = Watch(api, self.store, self.engine.mark)
        self.cluster.pods_synced = {"": self.watch.synced}

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        work = [asyncio.create_task(part.run()) for part in (self.watch, self.events, self.engine)]
        try:
            yield
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def observe(self) -> Observed:
        """Returns the observation of one pass, without the rest of the operator."""
        await self.cluster.keys()
        self.cluster.pods_synced = {}
        observed = await self.cluster.observe(KEY)
        assert observed is not None
        return observed

    def is_settled(self) -> bool:
        """Returns whether all pods exist and the status counts them."""
        known = self.server.objects[JOB].get("status", {}).get("sampler", {}).get("replicas") == 2
        return known and all(path in self.server.objects for path in PODS)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with FakeApiServer().serving() as server:
        await server.put(JOB, job())
        yield Scene(server)


async def test_a_job_gets_its_children_each_made_once_and_a_restarted_operator_makes_none() -> None:
    async with scene() as here:
        server, after = here.server, Scene(here.server)
        async with here.working():
            await until(lambda: any("/events/" in path for path in server.objects))
            await until(here.is_settled)
            await asyncio.sleep(0.5)  # two resyncs
        made = ("services/demo-rlt", "configmaps/demo-config")
        assert all(f"{CORE}/{path}" in server.objects for path in made)
        assert secret_of(server)["data"]
        assert server.objects[JOB]["status"]["phase"] == "Pending"
        assert server.asked("POST", "/pods") == 3
        assert server.asked("PATCH", "/status") == 1, "a status that is as it should be is not written again"
        assert server.asked("GET", "/pods") == 1, "passes read nothing: one list at the start"
        server.requests.clear()
        async with after.working():
            await until(lambda: after.store.child(KEY, "Service", "demo-rlt"))
            await asyncio.sleep(0.5)  # two resyncs
        assert [verb for verb, _ in server.requests if verb not in ("GET", "WATCH")] == [], (
            "nothing is written"
        )
        assert server.asked("GET", "/secrets") == 0, "it has no right to"


async def test_jobs_of_a_namespace_get_their_first_pods_one_after_another() -> None:
    """Otherwise each of two jobs could take one of two places of a quota, and wait for the other."""
    names = [f"job-{number}" for number in range(8)]
    async with FakeApiServer().serving() as server:
        for name in names:
            metadata = job()["metadata"] | {"name": name, "uid": f"{name}-uid"}
            spec = SPEC | {"sampler": {"replicas": 1}}
            await server.put(JOB.replace("/demo", f"/{name}"), job() | {"metadata": metadata, "spec": spec})
        async with Scene(server).working():
            await until(lambda: sum("/pods/" in path for path in server.objects) == 16)
    pods = [path.rpartition("/")[2] for path in server.objects if "/pods/" in path]
    pairs = [pods[i : i + 2] for i in range(0, len(pods), 2)]
    assert sorted(pairs) == [[f"{name}-learner-0", f"{name}-sampler-0"] for name in names]


async def test_the_pod_group_of_a_job_that_waits_is_looked_at_and_not_written() -> None:
    """Pods that a gang scheduler holds back may be Pending for days."""
    gang = SPEC | {"runPolicy": {"schedulingPolicy": {"volcano": {"queue": "gpu"}}}}
    async with scene() as here:
        await here.server.put(JOB, job() | {"spec": gang})
        async with here.working():
            await until(here.is_settled)
        here.server.requests.clear()
        again = Scene(here.server)
        async with again.working():
            await until(lambda: here.server.asked("GET", "/podgroups/demo") >= 3)  # as many resyncs
        assert [verb for verb, _ in here.server.requests if verb not in ("GET", "WATCH")] == []


FAULTS = {
    "pods are refused for a while": [Fault("POST", "/pods", status=500, times=4)],
    "a pod is made but the answer is lost": [Fault("POST", "/pods", cut=True, times=2)],
    "too many requests": [Fault("POST", "/", status=429, times=6, headers={"Retry-After": "0"})],
    "the status conflicts": [Fault("PATCH", "/status", status=409, times=3)],
    "the status is written but the answer is lost": [Fault("PATCH", "/status", cut=True, times=2)],
    "the server hangs": [Fault("POST", "/pods", seconds=5.0, times=2)],
    "the lists fail": [Fault("GET", "/", status=503, times=8)],
    "a kind is unknown for a while": [Fault("POST", "/networkpolicies", status=404, times=2)],
    "events are refused": [Fault("POST", "/events", status=403, times=100)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_heals_when(faults: list[Fault]) -> None:
    async with scene() as here:
        here.server.faults += [replace(fault) for fault in faults]
        async with here.working():
            await until(lambda: here.is_settled() and len(here.store.children(KEY)) >= 6)
        assert sum("/pods/" in path for path in here.server.objects) == 3


async def test_a_deleted_secret_is_made_again_with_the_token_that_pods_hold() -> None:
    async with scene() as here, here.working():
        await until(here.is_settled)
        secret = secret_of(here.server)
        path = f"{CORE}/secrets/{secret['metadata']['name']}"
        await here.server.drop(path)
        scheduled = {"type": "PodScheduled", "status": "True"}  # then the kubelet waits for the Secret
        status = {"phase": "Pending", "conditions": [scheduled]}
        await here.server.put(PODS[0], here.server.objects[PODS[0]] | {"status": status})
        await until(lambda: path in here.server.objects)
        assert here.server.objects[path]["data"] == secret["data"]


async def test_a_resync_that_is_asked_for_comes_at_once() -> None:
    async with scene() as here:
        here.engine = Engine(here.cluster, resync_seconds=1000.0)
        async with here.working():
            await until(lambda: here.store.job(KEY))
            await here.server.drop(JOB, tell=False)
            here.engine.resync()
            await until(lambda: here.store.job(KEY) is None)


async def test_one_job_that_hangs_delays_no_other() -> None:
    async with scene() as here:
        for number in range(7):
            await here.server.put(JOB.replace("demo", f"job-{number}"), job(f"job-{number}"))
        here.server.faults.append(Fault("PATCH", "/job-3/", seconds=30.0, times=100))
        began = time.monotonic()
        async with here.working():
            await until(lambda: sum("status" in found for found in here.server.objects.values()) == 7)
            assert time.monotonic() - began < 5.0


async def test_what_belongs_to_someone_else_is_left_alone_and_named() -> None:
    async with scene() as here:
        theirs = {"metadata": {"name": "demo", "namespace": "default"}, "spec": {"ports": []}}
        await here.server.put(f"{CORE}/services/demo", theirs)
        owner = {"uid": "uid-of-the-job", "controller": True}
        child = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "demo", "namespace": "default", "ownerReferences": [owner]},
        }
        with pytest.raises(NameTakenError, match="Service demo exists already"):
            await here.cluster.apply(KEY, child)
        theirs["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        await here.server.put(f"{CORE}/services/demo", theirs)
        with pytest.raises(ConflictError, match="still being deleted"):
            await here.cluster.apply(KEY, child)


async def test_a_pod_that_has_lost_its_labels_is_replaced() -> None:
    """No watch reports the pod any more, so the operator would consider it running forever."""
    async with scene() as here, here.working():
        await until(here.is_settled)
        bare = here.server.objects[PODS[1]]
        labels = bare["metadata"].pop("labels")
        here.store.remove("Pod", bare)
        await here.server.put(PODS[1], bare)
        here.engine.mark(KEY)
        await until(lambda: here.server.objects.get(PODS[1], bare)["metadata"].get("labels") == labels)
        assert here.server.objects[PODS[1]]["metadata"]["uid"] != bare["metadata"]["uid"]


async def test_a_job_that_waits_for_the_end_of_an_earlier_ones_pods_says_so() -> None:
    """The end of pods may take long, for example on a lost node until an administrator removes the node."""
    async with scene() as here:
        metadata = {"name": "demo-learner-0", "namespace": "default"}
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        await here.server.put(PODS[0], {"metadata": metadata})
        async with here.working():
            await until(
                lambda: "being deleted" in here.server.objects[JOB].get("status", {}).get("message", "")
            )
            assert here.server.objects[JOB]["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    "message", ["the server could not find the requested resource", "404 page not found\n"]
)
async def test_a_kind_that_the_cluster_does_not_know_is_a_refusal(message: str) -> None:
    async with scene() as here:
        here.server.faults.append(Fault("POST", "/podgroups", status=404, message=message))
        child = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "demo"},
        }
        with pytest.raises(RejectedError, match=r"no PodGroup of scheduling.volcano.sh/v1beta1"):
            await here.cluster.create(KEY, child)
        asked = len(here.server.requests)
        with pytest.raises(RejectedError, match=r"no PodGroup of scheduling.volcano.sh/v1beta1"):
            await here.cluster.apply(KEY, child)
        assert len(here.server.requests) == asked, "other jobs do not ask again at once"


async def test_a_namespace_that_is_gone_does_not_stop_the_others() -> None:
    async with scene() as here:
        here.server.faults.append(Fault("GET", "/namespaces/gone/", status=403, times=1000))
        parts = here.server.api(), here.store, here.events, Reports(), here.metrics
        cluster = KubernetesCluster(*parts, namespaces=("gone", "default"))
        cluster.tokens = Tokens(b"k" * 32)
        assert await cluster.keys() == [KEY]
        assert await cluster.observe(KEY) is not None
        with pytest.raises(UnavailableError, match="not listed yet"):
            await cluster.observe(Key("gone", "demo"))


async def test_another_incarnation_is_not_deleted() -> None:
    async with scene() as here:
        path = f"{CORE}/pods/demo-sampler-0"
        await here.server.put(path, {"metadata": {"name": "demo-sampler-0", "namespace": "default"}})
        await here.cluster.delete(KEY, Ref("Pod", "demo-sampler-0", "an-earlier-uid"))
        assert path in here.server.objects
        await here.cluster.delete(
            KEY, Ref("Pod", "demo-sampler-0", here.server.objects[path]["metadata"]["uid"])
        )
        await here.cluster.delete(KEY, Ref("Pod", "demo-sampler-0"))
        assert path not in here.server.objects


async def test_a_status_decided_by_an_older_job_is_refused() -> None:
    """Prevents two operators that both assume the lead from counting a failure twice."""
    async with scene() as here:
        observed = await here.observe()
        await here.server.put(JOB, job() | {"status": {"failures": 1}})  # the other one
        with pytest.raises(ConflictError):
            await here.cluster.patch_status(KEY, observed.uid, {"failures": 1, "phase": "Running"})
        assert here.server.objects[JOB]["status"] == {"failures": 1}


@pytest.mark.parametrize(
    ("algorithm", "label"), [({"entryPoint": {"module": "my.module"}}, "entryPoint"), ({}, "")]
)
async def test_jobs_that_ended_are_counted_by_algorithm_and_never_by_a_users_module(
    algorithm: dict[str, Any], label: str
) -> None:
    """A status may contain `my.module`, but a label with a value for each user's module is unbounded."""
    async with scene() as here:
        await here.server.put(JOB, job() | {"spec": SPEC | {"algorithm": algorithm}})
        observed = await here.observe()
        over = {"phase": "Succeeded", "completionTime": "2026-11-21T10:05:00Z", "algorithm": "my.module"}
        await here.cluster.patch_status(KEY, observed.uid, over)
        labels = {"result": "Succeeded", "algorithm": label}
        assert here.metrics.registry.get_sample_value("rltraining_jobs_finished_total", labels) == 1.0


async def test_equal_events_are_counted_and_expired_ones_written_anew() -> None:
    async with scene() as here:
        event = Event("Warning", "Stalled", "no progress")

        def written() -> list[dict[str, Any]]:
            return [found for found in here.server.objects.values() if found.get("reason") == "Stalled"]

        async with here.working():
            for _ in range(3):
                await here.cluster.emit(KEY, "uid-1", event)
            await until(lambda: [found["count"] for found in written()] == [3])
            await here.server.drop(f"{CORE}/events/{written()[0]['metadata']['name']}")
            await here.cluster.emit(KEY, "uid-1", event)
            await until(lambda: [found["count"] for found in written()] == [1])
        assert written()[0]["involvedObject"]["name"] == "demo"


MERGES: list[tuple[Any, Any, Any]] = [
    ({}, {"a": 1}, {"a": 1}),
    ({"a": 1}, {"a": 1}, {}),
    ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
    ({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3, "y": None}}),
    ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
    ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": None}}),
    ({}, {"a": {}}, {"a": {}}),
]


@pytest.mark.parametrize(("old", "new", "patch"), MERGES)
def test_merge_patch_replaces_the_whole(old: Any, new: Any, patch: Any) -> None:
    assert merge_patch(old, new) == patch
