"""How fast one operator creates pods, how much memory it uses, and how fast it recovers from a restart.

Runs on a real API server with nodes simulated by kwok (`python -m tests.local_kubernetes up --mode api
--fake-nodes 20`), all on this machine. Without nodes the pods are only created. The reference, in the
same run, is a bare client that creates the same pods and does nothing else. The 5,000 jobs take most of
an hour; `OPERATOR_JOBS=100,1000` selects numbers of jobs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from rltraining_api.crd import crd
from rltraining_api.manifest import read_job
from rltraining_api.names import API_VERSION, KIND, LABEL_JOB_NAME
from rltraining_operator.errors import ConflictError, NotFoundError, UnavailableError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.metrics import Metrics
from rltraining_operator.kube.paths import collection
from rltraining_operator.pods.build import build_pod
from rltraining_operator.pods.children import owner_reference
from rltraining_operator.settings import Settings

from tests.bench.table import print_table

NAMESPACE, OTHER_NAMESPACE = "bench", "bench-other"
SAMPLERS = 9
LADDER = "100,1000,5000"
"""Numbers of jobs, one after the other."""
HTTP_PORT = 18080
STORM_SECONDS = 2.0
"""Time from the first of many jobs to the job in another namespace."""
SETTLE_SECONDS = 20.0
Json = dict[str, Any]


def run(_: int) -> None:
    """Prints the tables, or the reason why there are none."""
    try:
        asyncio.run(_run())
    except (UnavailableError, NotFoundError) as error:
        print(f"not measured: {error}. It needs KUBECONFIG of a cluster; see tests/bench/operator.py")


async def _run() -> None:
    api = Api(qps=1e6, burst=1_000_000, request_seconds=60.0, meter=Metrics())
    try:
        await _install_crd(api)
        nodes = bool((await api.get("/api/v1/nodes", {"limit": "1"}))["items"])
        for jobs in map(int, os.environ.get("OPERATOR_JOBS", LADDER).split(",")):
            await _clean(api)
            bare = await _bare(api, jobs, nodes=nodes)
            await _clean(api)
            rows = await _operator(api, jobs, bare, nodes=nodes)
            print_table([f"{jobs:,} jobs of {SAMPLERS + 1} pods", "bare client", "operator"], rows)
            print()
        await _clean(api)
    finally:
        await api.close()


async def _install_crd(api: Api) -> None:
    """Creates the CRD unless there is one, and waits until it is served."""
    with suppress(ConflictError):
        await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
    while True:
        with suppress(NotFoundError):
            await api.get(collection(KIND, NAMESPACE), {"limit": "1"})
            return
        await asyncio.sleep(0.2)


class Times:
    """Records, in seconds from now, when all pods were created and when all were running.

    Watches report both times, because repeated lists would slow down the measured work.
    """

    def __init__(self, api: Api, pods: int, *, running: str, of: int) -> None:
        self.pods, self.began = pods, time.monotonic()
        self.created = self.running = float("nan")
        self._busy, self.processor_seconds = _busy_seconds(), float("nan")
        self._api, self._goal = api, (running, of)
        self._seen: dict[str, set[str]] = {"Pod": set(), f"running {KIND}": set(), "running Pod": set()}
        self._over = asyncio.Event()

    def cells(self) -> list[str]:
        """Returns the cells of the table, without their names."""
        running = f"{self.running:.1f} s" if self._goal[1] else "-"
        created = f"{self.created:.1f} s ({self.pods / self.created:.0f}/s)"
        return [created, running, f"{self.processor_seconds:.1f} s"]

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Times]:
        """Measures the block's work, and waits at the end until all is running."""
        kinds = {"Pod", self._goal[0]}
        versions = {
            kind: (await self._api.get(collection(kind, NAMESPACE), {"limit": "1"}))["metadata"][
                "resourceVersion"
            ]
            for kind in kinds
        }
        watches = [asyncio.create_task(self._watch(kind, versions[kind])) for kind in kinds]
        self.began, self._busy = time.monotonic(), _busy_seconds()
        try:
            yield self
            over = asyncio.create_task(self._over.wait())
            done, _ = await asyncio.wait([over, *watches], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in watches:
                task.cancel()

    async def _watch(self, kind: str, version: str) -> None:
        """Watches, and resumes a stream that the server ends because it is not read fast enough."""
        while True:
            query = {"watch": "1", "resourceVersion": version}
            async for event in self._api.stream(collection(kind, NAMESPACE), query, silence_seconds=120.0):
                self._note(kind, event["object"])
                version = event["object"]["metadata"]["resourceVersion"]

    def _note(self, kind: str, found: Json) -> None:
        name, now = found["metadata"]["name"], time.monotonic() - self.began
        if kind == "Pod":
            self._seen["Pod"].add(name)
        if (found.get("status") or {}).get("phase") == "Running":
            self._seen[f"running {kind}"].add(name)
        if self.created != self.created and len(self._seen["Pod"]) >= self.pods:
            self.created = now
        wanted, count = self._goal
        if (
            self.created == self.created
            and len(self._seen[f"running {wanted}"]) >= count
            and not self._over.is_set()
        ):
            self.running, self.processor_seconds = now, _busy_seconds() - self._busy
            self._over.set()


def _busy_seconds() -> float:
    """Returns the CPU time that all processes on this machine have used."""
    spent = psutil.cpu_times()
    return float(spent.user + spent.nice + spent.system)


async def _bare(api: Api, jobs: int, *, nodes: bool) -> Times:
    """Measures a client that creates the same pods and does nothing else."""
    pods = [pod for number in range(jobs) for pod in _pods_of(number)]
    slots = asyncio.Semaphore(64)

    async def create(pod: Json) -> None:
        async with slots:
            await api.post(collection("Pod", NAMESPACE), pod)

    async with Times(api, len(pods), running="Pod", of=len(pods) * nodes).taken() as times:
        await asyncio.gather(*map(create, pods))
    return times


async def _run_jobs(api: Api, jobs: int, process: psutil.Process, *, nodes: bool) -> tuple[Times, float]:
    """Applies all jobs together. Returns the times and the operator's peak memory in MiB."""
    peak = 0.0

    async def weigh() -> None:
        nonlocal peak
        while True:
            peak = max(peak, _rss(process))
            await asyncio.sleep(1.0)

    scales = asyncio.create_task(weigh())
    async with Times(api, jobs * (SAMPLERS + 1), running=KIND, of=jobs * nodes).taken() as times:
        await _apply(api, jobs)
    scales.cancel()
    return times, peak


async def _job_elsewhere(api: Api) -> float:
    """Creates a job in another namespace, and returns after how many seconds all its pods exist."""
    await asyncio.sleep(STORM_SECONDS)
    began = time.monotonic()
    await api.post(collection(KIND, OTHER_NAMESPACE), _job(0, OTHER_NAMESPACE))
    while len((await api.get(collection("Pod", OTHER_NAMESPACE)))["items"]) < SAMPLERS + 1:
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _operator(api: Api, jobs: int, bare: Times, *, nodes: bool) -> list[tuple[str, str, str]]:
    """Measures the operator. Returns the rows of the table, which has the bare client beside it."""
    with _operator_process() as process:
        await _until_ready(process)
        smallest = _rss(process)
        elsewhere = asyncio.create_task(_job_elsewhere(api))
        times, peak = await _run_jobs(api, jobs, process, nodes=nodes)
        await asyncio.sleep(SETTLE_SECONDS)
        peak, scraped = max(peak, _rss(process)), _scrape()
        names = (
            "pods created",
            "all jobs Running (bare client: all pods)",
            "processor time of all processes",
        )
        rows = list(zip(names, bare.cells(), times.cells(), strict=True))
        growth = (peak - smallest) * 1000 / times.pods
        found = {
            "a job in another namespace meanwhile: pods created after": f"{await elsewhere:.1f} s",
            "largest resident memory": f"{peak:.0f} MiB",
            "the same, for 1,000 pods": f"{growth:.1f} MiB more",
            "duration of a pass, 95th percentile": f"<= {_quantile(scraped, 'rltraining_reconcile_seconds', 0.95)} s",
            "wait for a pass, 95th percentile": f"<= {_quantile(scraped, 'rltraining_queue_wait_seconds', 0.95)} s",
            "status writes per job": f"{_value(scraped, 'rltraining_status_writes_total') / jobs:.1f}",
        }
        idle = _value(_scrape(), "rltraining_status_writes_total")
        await asyncio.sleep(SETTLE_SECONDS)
        found[f"status writes in {SETTLE_SECONDS:.0f} idle seconds"] = (
            f"{_value(_scrape(), 'rltraining_status_writes_total') - idle:.0f}"
        )
    with _operator_process() as process:
        began = time.monotonic()
        await _until_ready(process)
        # All jobs enter the queue together, so `jobs` passes mean that each job had one pass.
        while _value(_scrape(), "rltraining_reconcile_seconds_count") < jobs:
            await asyncio.sleep(0.2)
        found["restarted: all jobs reconciled after"] = f"{time.monotonic() - began:.1f} s"
        found["restarted: pods created again"] = f"{_value(_scrape(), 'rltraining_pods_created_total'):.0f}"
        await asyncio.sleep(5.0)
        found["restarted: resident memory"] = f"{_rss(process):.0f} MiB"
    return [*rows, *((name, "", cell) for name, cell in found.items())]


def _job(number: int, namespace: str = NAMESPACE) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"job-{number}", "namespace": namespace},
        "spec": {
            "algorithm": {"impala": {}},
            "environment": {"id": "CartPole-v1"},
            "sampler": {"replicas": SAMPLERS},
            "stop": {"environmentSteps": 1_000_000},
        },
    }


def _pods_of(number: int) -> Iterator[Json]:
    job = read_job(_job(number) | {"metadata": {"name": f"job-{number}", "namespace": NAMESPACE, "uid": "x"}})
    for role, count in (("learner", 1), ("sampler", SAMPLERS)):
        for index in range(count):
            pod = build_pod(job, owner_reference(job, "x"), role, index, Settings())  # type: ignore[arg-type]
            del pod["metadata"]["ownerReferences"]
            yield pod


async def _apply(api: Api, jobs: int) -> None:
    slots = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with slots:
            await api.post(collection(KIND, NAMESPACE), _job(number))

    await asyncio.gather(*map(create, range(jobs)))


async def _clean(api: Api) -> None:
    await _clean_namespace(api, NAMESPACE)
    await _clean_namespace(api, OTHER_NAMESPACE)


async def _clean_namespace(api: Api, namespace: str) -> None:
    """Empties the namespace."""
    with suppress(ConflictError):
        await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for kind in (KIND, "Pod", "Event"):
        await _delete_all(api, kind, namespace)
    for kind in (KIND, "Pod", "Service", "ConfigMap", "Secret"):
        while await _left(api, kind, namespace):
            await asyncio.sleep(0.5)


async def _delete_all(api: Api, kind: str, namespace: str) -> None:
    """Deletes the objects of a kind. Ten thousand pods take longer than a request may, so that it is repeated."""
    while True:
        with suppress(UnavailableError):
            await api.delete(collection(kind, namespace), {"gracePeriodSeconds": 0} if kind == "Pod" else {})
            return


async def _left(api: Api, kind: str, namespace: str) -> int:
    selector = {"labelSelector": LABEL_JOB_NAME} if kind not in (KIND, "Pod") else {}
    try:
        return len((await api.get(collection(kind, namespace), {"limit": "1"} | selector))["items"])
    except NotFoundError:
        return 0


@contextmanager
def _operator_process() -> Iterator[psutil.Process]:
    program = Path(sys.executable).with_name("rltraining-operator")
    command = [str(program), "--http-port", str(HTTP_PORT)]
    with Path(os.environ.get("BENCH_LOG", os.devnull)).open("a") as log:
        started = subprocess.Popen(command, stderr=log)
        try:
            yield psutil.Process(started.pid)
        finally:
            started.terminate()
            started.wait()


async def _until_ready(process: psutil.Process) -> None:
    while _value(_scrape(), "rltraining_leader") != 1.0:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise SystemExit("the operator has ended; BENCH_LOG=file keeps what it said")
        await asyncio.sleep(0.1)


def _rss(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def _scrape() -> list[str]:
    """Returns the operator's metrics, line by line, or nothing while the operator does not serve."""
    try:
        with urlopen(f"http://127.0.0.1:{HTTP_PORT}/metrics") as response:
            return str(response.read(), "utf-8").splitlines()
    except OSError:
        return []


def _value(lines: Sequence[str], name: str) -> float:
    """Returns the sum of a metric over its labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def _quantile(lines: Sequence[str], name: str, share: float) -> float:
    """Returns the upper bound of the histogram bucket that contains the quantile."""
    total = _value(lines, f"{name}_count")
    for line in lines:
        if line.startswith(f"{name}_bucket"):
            bound = line.split('le="')[1].split('"')[0]
            if float(line.rsplit(" ", 1)[1]) >= share * total:
                return float(bound)
    return float("inf")
