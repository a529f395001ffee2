"""Processes as pods: a cluster on one machine, for the same engine, the same plan and the same status.

    async def train(job: RLTrainingJob, workdir: Path) -> RLTrainingJob:
        runtime = WarmRuntime("rltraining_trainer.roles.main:main")    # forked per pod; imported once
        async with LocalCluster(workdir, runtime) as cluster:          # leaving it ends every process, in order
            engine = Engine(cluster, settings=LOCAL_SETTINGS)          # LOCAL_SETTINGS: progress every 0.5 s
            cluster.subscribe(engine.mark)                             # any callable(Key): a live table, too
            running = asyncio.create_task(engine.run())
            key = await cluster.submit(job)                            # RejectedError: the workdir has a job already
            job = await cluster.until(key, lambda job: job.status.completion_time is not None)
            engine.stop()
            await running
            return job

Meanwhile `cluster.job(key)` is the job with its status, `cluster.pods(key)` its pods (`Pod`: phase, ready, restarts;
`cluster.pid(name)`), `cluster.events` the story so far. `await cluster.update_spec(key, {"sampler": {"replicas": 4}})`
is `kubectl patch --type merge`; `{"runPolicy": {"suspend": True}}` ends all pods in order, after a last checkpoint:
that is what Ctrl-C does. `await cluster.delete_job(key)` deletes the job and all that belongs to it.
A ConfigMap with user code is given to the cluster before the job: `cluster.put(manifest)`.

In the workdir: `status.json` (the job, with its status), `logs/<pod>.log`, and what the trainer writes to its output
directory (`checkpoints/`, `tensorboard/`, `policy/`); `.pods/` holds the mounted files of running pods.
"""

from rltraining_operator.engine import Engine
from rltraining_operator.local.cluster import LocalCluster
from rltraining_operator.local.events import read_events
from rltraining_operator.local.runtime import Runtime, SharedRuntime, WarmRuntime
from rltraining_operator.settings import Settings

LOCAL_SETTINGS = Settings(progress_seconds=0.5, one_machine=True)
"""Asking a learner next door costs nothing."""

__all__ = [
    "LOCAL_SETTINGS",
    "Engine",
    "LocalCluster",
    "Runtime",
    "SharedRuntime",
    "WarmRuntime",
    "read_events",
]
