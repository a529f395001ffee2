"""Defines what the administrator who installs the operator configures, as opposed to the fields of
a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rltraining_api.lifecycle import Encryption, LearnerEviction
from rltraining_api.names import Role

Peer = Mapping[str, Any]
"""A NetworkPolicyPeer with `namespaceSelector` and `podSelector`, as in the API."""

Resources = Mapping[str, Mapping[str, Any]]
"""`requests` and `limits` of a container, as in the API."""


@dataclass(frozen=True)
class Settings:
    """Inputs of every plan.

    They bound how often a job's status is written: at most once every `progress_seconds` for the
    learner's report (6 times a minute by default), and otherwise only after a change: a pod is
    created, fails, becomes ready or cannot start, a condition that the learner reports changes its
    status, the spec changes, or the job ends.
    """

    image: str = "rltraining-trainer"
    """Trainer image of jobs without `spec.image`."""
    image_pull_policy: str = ""
    """`Always`, `IfNotPresent` or `Never`, for templates without a policy. If empty, the default of
    Kubernetes."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets in each job's namespace with which images are pulled, for templates without
    secrets."""
    priority_class: str = ""
    """PriorityClass of pods, for templates without one. If empty, the default of the cluster."""
    sampler_priority_class: str = ""
    """PriorityClass of samplers instead of `priority_class`. If empty, there is no difference."""
    resources: Mapping[Role, Resources] = field(default_factory=dict)
    """Requests and limits of the trainer container by role. A resource that the template names, in
    requests or in limits, has only the values of the template."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that may run pods, for templates without a node selector."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Tolerations of pods, for templates without tolerations."""
    runtime_class: str = ""
    """RuntimeClass of pods, for templates without one. If empty, the default of the cluster."""
    progress_seconds: float = 10.0
    """Interval of requests for a learner's report. Progress alone is written to a status at most as
    often."""
    autoscale_seconds: float = 30.0
    """With `sampler.autoscale`, seconds from a change of the number of ready samplers to the next
    decision. The first half is for samplers to start, and the second half is measured."""
    rpc_ports: tuple[int, int] | None = (20_000, 29_999)
    """First and last port of a pod's RPC listeners and outgoing connections
    (`net.ipv4.ip_local_port_range`, a sysctl that Kubernetes classifies as safe). The same sysctl
    in a template takes precedence. None: the default of the kernel."""
    network_policy: bool = True
    """Whether each job gets a NetworkPolicy, which admits only the job's own pods to its pods,
    except for HTTP (below)."""
    operator_peer: Peer | None = None
    """The operator's pods, which request the learners' reports over HTTP. The peer must contain
    their namespace, because users of other namespaces can create pods with the same labels. None:
    the operator does not run in a pod."""
    metrics_peer: Peer | None = None
    """The pods that may read the metrics of a job's pods over HTTP, such as Prometheus. None: no
    pods."""
    pod_monitor_interval: str = ""
    """Interval between two scrapes in the PodMonitor that each job gets, such as `30s`. If empty, jobs get
    no PodMonitor."""
    pod_monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the PodMonitors, by which a Prometheus selects them."""
    learner_eviction: LearnerEviction = "Allow"
    """Whether voluntary evictions (a drain) of ready learners are allowed, for jobs that do not
    choose."""

    encryption: Encryption = "None"
    """Of the connections of jobs that do not choose."""

    one_machine: bool = False
    """Whether pods are processes of this machine. Messages then describe causes on this machine
    instead of a cluster's."""
    cores: int | None = None
    """Cores of this machine, if pods are processes of this machine. The sentences about the bottleneck use the number."""


# Delays of a plan. None of them is polled: a pass is due when one has elapsed.
REMAKE_SECONDS = 10.0
"""Delay in seconds before a sampler or replay pod that exited as done is created again, if the
first learner has no stop reason by then. A pod that failed within this time of its creation is not replaced
sooner."""
GIVE_WAY_SECONDS = 10.0
"""Seconds that a learner or replay pod waits for a node or a queue before samplers give way to
it."""
FINISH_SECONDS = 5.0
"""After success, pods have this many seconds to exit by themselves, as the first learner requests,
before they are deleted."""
STALL_SECONDS = 180.0
"""Seconds without progress after which the condition Progressing becomes False."""
LOST_SECONDS = 60.0
"""A pod that still exists this many seconds after its grace period was on a lost node. Its deletion
is forced."""
EVENTS_AFTER_SECONDS = 5.0
"""Seconds after which the events of a scheduled pod without volumes are read, because they name a
missing ConfigMap or Secret."""
EVENTS_INTERVAL_SECONDS = (5.0, 30.0)
"""Bounds in seconds of the interval at which these events are read again. The interval is a quarter of
the time that the pod has waited."""
START_SECONDS = 60.0
"""Seconds after which a scheduled pod without containers counts as slow."""
UNREACHABLE_SECONDS = 60.0
"""Seconds without a report after which a ready learner is unreachable."""
REJECTION_RETRY_SECONDS = (1.0, 30.0)
"""Bounds in seconds of the delay before rejected children are created again. The delay is half the
time since the first rejection."""

DISRUPTIONS_MAX = 10
"""Number of disruptions of one member in a row, without an environment step between them, that do
not count as failures. Further ones count, because repeated kills are caused by the job or will not
stop."""
