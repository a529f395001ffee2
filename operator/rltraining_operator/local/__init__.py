"""A cluster on one machine that runs pods as processes, for the same engine, plan and status.

    async def train(job: RLTrainingJob, workdir: Path) -> RLTrainingJob:
        # The program is imported once and forked per pod.
        runtime = WarmRuntime("rltraining_trainer.roles.main:main")
        # Ends all processes in order on exit.
        async with LocalCluster(workdir, runtime) as cluster:
            # LOCAL_SETTINGS: progress every 0.5 s.
            engine = Engine(cluster, settings=LOCAL_SETTINGS)
            # Any callable(Key) can subscribe, such as a live table.
            cluster.subscribe(engine.mark)
            running = asyncio.create_task(engine.run())
            # Raises RejectedError if the workdir has a job already.
            key = await cluster.submit(job)
            job = await cluster.until(key, lambda job: job.status.completion_time is not None)
            engine.stop()
            await running
            return job

Meanwhile `cluster.job(key)` returns the job with its status, `cluster.pods(key)` its pods (`Pod`:
phase, ready, restarts; `cluster.pid(name)`), and `cluster.events` the events so far. `await
cluster.update_spec(key, {"sampler": {"replicas": 4}})` corresponds to `kubectl patch --type merge`.
`{"runPolicy": {"suspend": True}}` stops all pods in order after a last checkpoint, as Ctrl-C does.
`await cluster.delete_job(key)` deletes the job and its children. A ConfigMap with user code is
added before the job, with `cluster.put(manifest)`.

Files in the workdir: `status.json` (the job with its status), `logs/<pod>.log`, and the output of
the trainer (`checkpoints/`, `tensorboard/`, `policy/`). `.pods/` contains the mounted files of
running pods.
"""

import os

from rltraining_operator.engine import Engine
from rltraining_operator.local.cluster import LocalCluster
from rltraining_operator.local.events import read_events
from rltraining_operator.local.runtime import Runtime, SharedRuntime, WarmRuntime
from rltraining_operator.settings import Settings

LOCAL_SETTINGS = Settings(
    progress_seconds=0.5, autoscale_seconds=10.0, one_machine=True, cores=os.cpu_count()
)
"""Reports are requested often, because requests on one machine are cheap. The number of samplers changes
sooner, because they start sooner."""

__all__ = [
    "LOCAL_SETTINGS",
    "Engine",
    "LocalCluster",
    "Runtime",
    "SharedRuntime",
    "WarmRuntime",
    "read_events",
]
