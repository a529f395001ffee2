"""How fast one operator creates pods, how much memory it uses, and how fast it recovers from a restart.

Runs on a real API server with nodes simulated by kwok (`python -m tests.local_kubernetes up --mode api
--fake-nodes 20`), all on this machine. Without nodes the pods are only created. The reference, in the
same run, is a bare client that creates the same pods and does nothing else.
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
ROUNDS = 2
HTTP_PORT = 18080
STORM_SECONDS = 5.0
"""Time from the first of many jobs to the job in another namespace."""
Json = dict[str, Any]


def run(_: int) -> None:
    """Prints the tables, or the reason why there are none."""
    try:
        asyncio.run(_run())
    except (UnavailableError, NotFoundError) as error:
        print(
            f"not measured: {error}. It needs KUBECONFIG of a cluster that has the CRD; see tests/bench/operator.py"
        )


async def _run() -> None:
    api = Api(qps=1e6, burst=1_000_000, request_seconds=60.0, meter=Metrics())
    try:
        nodes = bool((await api.get("/api/v1/nodes", {"limit": "1"}))["items"])
        rows = []
        for _ in range(ROUNDS):
            await _clean(api)
            rows.append(["bare client", *(await _bare(api, jobs=100, nodes=nodes)).row()])
            await _clean(api)
            rows.append(["operator", *(await _operator(api, jobs=100, nodes=nodes)).row()])
        print_table(
            ["1,000 pods of 100 jobs", "all created", "pods/s", "all running", "processor time of all"], rows
        )
        if not nodes:
            return
        await _clean(api)
        await _many(api, jobs=1000)
        with suppress(UnavailableError):  # ten thousand pods take longer to delete than a request may
            await _clean(api)
    finally:
        await api.close()


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

    def row(self) -> list[str]:
        """Returns the table's row."""
        running = f"{self.running:.1f} s" if self._goal[1] else "-"
        return [
            f"{self.created:.1f} s",
            f"{self.pods / self.created:.0f}",
            running,
            f"{self.processor_seconds:.1f} s",
        ]

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
    return float(spent.user + spent.system)


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


async def _operator(api: Api, jobs: int, *, nodes: bool) -> Times:
    """Measures the operator."""
    with _operator_process() as process:
        return (await _run_jobs(api, jobs, process, nodes=nodes))[0]


async def _run_jobs(
    api: Api, jobs: int, process: psutil.Process, *, nodes: bool = True
) -> tuple[Times, float]:
    """Applies all jobs together. Returns the times and the operator's peak memory in MiB."""
    await _until_ready(process)
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


async def _many(api: Api, jobs: int) -> None:
    with _operator_process() as process:
        await _until_ready(process)
        smallest = _rss(process)
        elsewhere = asyncio.create_task(_job_elsewhere(api))
        times, peak = await _run_jobs(api, jobs, process)
        await asyncio.sleep(20.0)
        scraped = _scrape()
        rows = [
            ["pods created", f"{times.created:.1f} s ({times.pods / times.created:.0f}/s)"],
            ["all jobs Running", f"{times.running:.1f} s"],
            ["a job in another namespace meanwhile: pods created after", f"{await elsewhere:.1f} s"],
            ["largest resident memory", f"{(peak := max(peak, _rss(process))):.0f} MiB"],
            ["the same, for 1,000 pods", f"{(peak - smallest) * 1000 / times.pods:.1f} MiB more"],
            [
                "duration of a pass, 95th percentile",
                f"<= {_quantile(scraped, 'rltraining_reconcile_seconds', 0.95)} s",
            ],
            [
                "wait for a pass, 95th percentile",
                f"<= {_quantile(scraped, 'rltraining_queue_wait_seconds', 0.95)} s",
            ],
            ["status writes per job", f"{_value(scraped, 'rltraining_status_writes_total') / jobs:.1f}"],
        ]
    with _operator_process() as process:
        began = time.monotonic()
        await _until_ready(process)
        # All jobs enter the queue together, so `jobs` passes mean that each job had one pass.
        while _value(_scrape(), "rltraining_reconcile_seconds_count") < jobs:
            await asyncio.sleep(0.2)
        rows.append(["restarted: all jobs reconciled after", f"{time.monotonic() - began:.1f} s"])
        rows.append(
            ["restarted: pods created again", f"{_value(_scrape(), 'rltraining_pods_created_total'):.0f}"]
        )
        await asyncio.sleep(5.0)
        rows.append(["restarted: resident memory", f"{_rss(process):.0f} MiB"])
    print_table([f"{jobs} jobs of {SAMPLERS + 1} pods", ""], rows)


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
        await api.delete(collection(kind, namespace), {"gracePeriodSeconds": 0} if kind == "Pod" else {})
    for kind in (KIND, "Pod", "Service", "ConfigMap", "Secret"):
        while await _left(api, kind, namespace):
            await asyncio.sleep(0.5)


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
