"""What the one who installs the operator, not the one who writes a job, decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Peer = Mapping[str, Any]
"""A NetworkPolicyPeer: `namespaceSelector` and `podSelector`, as the API has them."""


@dataclass(frozen=True)
class Settings:
    """Inputs of every plan.

    They bound how often a job's status is written: at most once every `progress_seconds` for what its learner says (6
    times a minute by default), and beyond that only when something turns: a pod comes, dies, becomes ready or is in
    trouble, a condition that the learner reports changes its status, the spec changes, the job ends.
    """

    image: str = "rltraining-trainer"
    """Trainer image of jobs that name none."""
    image_pull_policy: str = ""
    """`Always`, `IfNotPresent` or `Never`, where a template says nothing; empty: Kubernetes' own default."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets, in each job's namespace, to pull images with, where a template names none."""
    priority_class: str = ""
    """PriorityClass of pods whose template names none; empty: the cluster's own default."""
    progress_seconds: float = 10.0
    """How often a learner is asked for its progress, and at most how often that alone is written to a status."""
    rpc_ports: tuple[int, int] | None = (20_000, 29_999)
    """First and last port of a pod's RPC listeners and of its outgoing connections (`net.ipv4.ip_local_port_range`, a
    sysctl that Kubernetes holds safe); a template's own sysctl of that name goes before it. None: the kernel's own."""
    network_policy: bool = True
    """Whether each job gets a NetworkPolicy: only its own pods reach its pods, but for HTTP (below)."""
    operator_peer: Peer | None = None
    """The operator's pods, which ask learners for their progress over HTTP. It names their namespace, since anybody can
    make pods with their labels elsewhere. None: the operator runs outside the cluster's pods."""
    metrics_peer: Peer | None = None
    """Who may read the pods' metrics, over HTTP: Prometheus. None: nobody."""
    pod_disruption_budget: bool = True
    """Whether voluntary evictions (a drain) of a learner that is ready are refused until its job ends."""

    one_machine: bool = False
    """Whether pods are processes of this machine. Messages then name causes on this machine instead of a cluster's."""


# Times that a plan waits for; none of them is a poll: a pass is due when one is over.
REMAKE_SECONDS = 10.0
"""A sampler or replay pod that says it is done is made anew after this, if the learner is not done by then; and a pod
that failed within this time of its creation is not replaced sooner."""
FINISH_SECONDS = 5.0
"""After success pods may end by themselves for so long (the first learner tells them to), before they are deleted."""
STALL_SECONDS = 180.0
"""Without progress for so long, the condition Progressing turns False."""
LOST_SECONDS = 60.0
"""A deleted pod that is still there so long after its grace is over was on a node that is lost: it is forced out."""
START_SECONDS = 60.0
"""A pod that has had a node for so long and no container yet is said to be slow."""
UNREACHABLE_SECONDS = 60.0
"""After this time without a report a ready learner is unreachable."""
REFUSED_SECONDS = (1.0, 30.0)
"""What the cluster refuses to make is tried again after half the time for which it has refused already, within these."""

DISRUPTIONS_MAX = 10
"""So many disruptions of one member in a row, without an environment step gained between them, are healed for nothing;
those that follow count as failures: a kill that comes again and again is the job's own doing, or of no use to wait for."""
