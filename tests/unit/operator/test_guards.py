"""Network access and evictions of a job's pods, and the settings of installations and templates."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import LEARNER, SAMPLER_0, World, dedicated, make_world, report, termination
from rltraining_api.lifecycle import LearnerEviction
from rltraining_api.names import Role
from rltraining_operator.settings import Settings

OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rltraining-system"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/instance": "rltraining-operator"}},
}
MEMBERS = {"matchLabels": {"rltraining.dev/job-name": "demo"}}
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
REFUSE = Settings(learner_eviction="Refuse")
RANGE = "net.ipv4.ip_local_port_range"


def settled(settings: Settings | None = None, **spec: Any) -> World:
    world = make_world(**spec)
    world.settings = settings or Settings()
    return world.settle()


def learner(settings: Settings | None = None, **template: Any) -> dict[str, Any]:
    world = settled(settings, learner={"template": {"spec": template}})
    spec: dict[str, Any] = world.pods[LEARNER]["spec"]
    return spec


def test_only_members_reach_members_but_for_http() -> None:
    policy = settled(Settings(operator_peer=OPERATOR, metrics_peer=PROMETHEUS)).others[
        "NetworkPolicy", "demo"
    ]
    assert policy["apiVersion"] == "networking.k8s.io/v1"
    assert policy["spec"] == {
        "podSelector": MEMBERS,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": MEMBERS}]},
            {
                "from": [OPERATOR, PROMETHEUS],
                "ports": [{"port": 8080, "protocol": "TCP"}],
            },
        ],
    }


def test_without_a_peer_for_metrics_nobody_but_the_operator_may_ask() -> None:
    rules = settled(Settings(operator_peer=OPERATOR)).others["NetworkPolicy", "demo"]["spec"]["ingress"]
    assert [len(rule["from"]) for rule in rules] == [1, 1]


def test_with_no_peer_at_all_only_members_are_admitted() -> None:
    """An operator outside a pod has no labels to select, and an empty `from` would admit all peers."""
    rules = settled().others["NetworkPolicy", "demo"]["spec"]["ingress"]
    assert rules == [{"from": [{"podSelector": MEMBERS}]}]


def test_a_job_cannot_make_a_service_of_any_name() -> None:
    names = [name for kind, name in settled().others if kind == "Service"]
    assert names == ["demo-rlt"], "a job called postgres must not answer for postgres"


def test_a_policy_that_is_no_longer_wanted_is_taken_away() -> None:
    world = settled().run().settle()
    world.settings = Settings(network_policy=False)
    world.settle()
    assert {kind for kind, _ in world.others} == {"Service", "ConfigMap", "Secret"}


@pytest.mark.parametrize(
    ("job", "installation", "refused"),
    [
        (None, "Allow", False),
        (None, "Refuse", True),
        ("Allow", "Refuse", False),
        ("Refuse", "Allow", True),
    ],
)
def test_a_job_or_else_the_installation_decides_whether_learners_may_be_evicted(
    job: str | None, installation: LearnerEviction, refused: bool
) -> None:
    policy = {"learnerEviction": job} if job else {}
    world = settled(Settings(learner_eviction=installation), runPolicy=policy).run().settle()
    assert (("PodDisruptionBudget", "demo-learner") in world.others) == refused


def test_evictions_are_refused_and_allowed_while_the_job_runs() -> None:
    world = settled().run()
    for choice, refused in (("Refuse", True), ("Allow", False)):
        world.spec(runPolicy={"learnerEviction": choice}).settle()
        assert (("PodDisruptionBudget", "demo-learner") in world.others) == refused


def test_a_learner_that_is_ready_is_not_evicted_while_its_job_runs() -> None:
    world = settled(REFUSE)
    assert ("PodDisruptionBudget", "demo-learner") not in world.others, "there is nothing to protect yet"
    world.run().settle()
    budget = world.others["PodDisruptionBudget", "demo-learner"]
    assert (budget["apiVersion"], budget["spec"]) == (
        "policy/v1",
        {
            "minAvailable": 1,
            "selector": {
                "matchLabels": {"rltraining.dev/job-name": "demo", "rltraining.dev/role": "learner"}
            },
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )


def test_replay_pods_are_guarded_like_learners() -> None:
    world = make_world(runPolicy={"learnerEviction": "Refuse"}, **dedicated(2)).settle()
    assert ("PodDisruptionBudget", "demo-replay") not in world.others, "there is nothing to protect yet"
    world.run().settle()
    budget = world.others["PodDisruptionBudget", "demo-replay"]["spec"]
    assert budget["minAvailable"] == 2
    assert budget["selector"]["matchLabels"]["rltraining.dev/role"] == "replay"
    world.spec(runPolicy={"learnerEviction": "Allow"}).settle()
    assert ("PodDisruptionBudget", "demo-replay") not in world.others


@pytest.mark.parametrize(("code", "clean"), [(0, "All"), (0, "None"), (64, "Running"), (64, "None")])
def test_what_is_over_holds_up_no_drain(code: int, clean: str) -> None:
    policy = {"cleanPodPolicy": clean, "learnerEviction": "Refuse"}
    world = make_world(runPolicy=policy, **dedicated(2)).up().settle()
    budgets = {("PodDisruptionBudget", "demo-learner"), ("PodDisruptionBudget", "demo-replay")}
    assert budgets <= world.others.keys()
    world.die(LEARNER, code, message=termination("", "", report(1, "Finished"))).step()
    assert not budgets & world.others.keys()
    assert ("NetworkPolicy", "demo") in world.others, "pods that are left are still guarded"


def test_a_budget_that_outlived_its_job_is_found() -> None:
    world = settled(REFUSE).run().settle()
    budget = world.others["PodDisruptionBudget", "demo-learner"]
    world.die(LEARNER, 0, message=termination("Completed", "", report(1, "Finished"))).settle()
    world.after(100).settle()
    world.end_deleted().settle()
    assert world.status.phase == "Succeeded"
    world.others["PodDisruptionBudget", "demo-learner"] = budget
    world.settle()
    assert ("PodDisruptionBudget", "demo-learner") not in world.others


@pytest.mark.parametrize(
    ("settings", "template", "sysctls"),
    [
        (Settings(), {}, [{"name": RANGE, "value": "20000 29999"}]),
        (Settings(rpc_ports=(1, 2)), {}, [{"name": RANGE, "value": "1 2"}]),
        (Settings(rpc_ports=None), {}, None),
        (
            Settings(),
            {"securityContext": {"sysctls": [{"name": RANGE, "value": "5 6"}]}},
            [{"name": RANGE, "value": "5 6"}],
        ),
        (
            Settings(),
            {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "9"}]}},
            [{"name": RANGE, "value": "20000 29999"}, {"name": "net.core.somaxconn", "value": "9"}],
        ),
        (Settings(), {"hostNetwork": True}, []),
    ],
)
def test_ports_of_rpc(settings: Settings, template: dict[str, Any], sysctls: object) -> None:
    security = learner(settings, **template)["securityContext"]
    assert security.get("sysctls") == sysctls
    assert security["runAsNonRoot"] is True


def test_what_an_installation_decides_and_a_template_may_change() -> None:
    settings = Settings(
        image="registry/trainer:1",
        image_pull_policy="Never",
        image_pull_secrets=("a", "b"),
        priority_class="low",
    )
    ours = learner(settings)
    assert ours["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert ours["priorityClassName"] == "low"
    trainer = ours["containers"][0]
    assert (trainer["image"], trainer["imagePullPolicy"]) == ("registry/trainer:1", "Never")
    theirs = learner(
        settings,
        imagePullSecrets=[{"name": "mine"}],
        priorityClassName="high",
        containers=[{"name": "trainer", "imagePullPolicy": "Always"}],
    )
    assert (theirs["imagePullSecrets"], theirs["priorityClassName"]) == ([{"name": "mine"}], "high")
    assert theirs["containers"][0]["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("settings", "classes"),
    [
        (Settings(sampler_priority_class="low"), [None, "low"]),
        (Settings(priority_class="high", sampler_priority_class="low"), ["high", "low"]),
        (Settings(priority_class="high"), ["high", "high"]),
    ],
)
def test_samplers_may_have_another_priority_class(settings: Settings, classes: list[str | None]) -> None:
    pods = settled(settings).pods
    assert [pods[name]["spec"].get("priorityClassName") for name in (LEARNER, SAMPLER_0)] == classes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeSelector", {"gpu": "a100"}),
        ("tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]),
        ("terminationGracePeriodSeconds", 120),
    ],
)
def test_a_template_reaches_its_own_role_only(field: str, value: object) -> None:
    theirs = {"template": {"spec": {field: value}}}
    for name in (LEARNER, "demo-replay-0", SAMPLER_0):
        role = name.split("-")[1]
        spec = dedicated(1) | {"sampler": {"replicas": 1}}
        spec[role] = spec.get(role, {}) | theirs
        world = settled(**spec)
        assert {pod for pod, made in world.pods.items() if made["spec"].get(field) == value} == {name}


SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}}
LIMITED = SMALL | {"limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("ours", "theirs", "result"),
    [
        (SMALL, {}, SMALL),
        (SMALL, {"requests": {"cpu": "2"}}, {"requests": {"cpu": "2", "memory": "512Mi"}}),
        # Kubernetes then requests the limit. A request of 512Mi would be more, and rejected.
        (
            SMALL,
            {"limits": {"memory": "40Mi"}},
            {"requests": {"cpu": "100m"}, "limits": {"memory": "40Mi"}},
        ),
        (LIMITED, {"requests": {"memory": "4Gi"}}, {"requests": {"cpu": "100m", "memory": "4Gi"}}),
        (SMALL, {"limits": {"nvidia.com/gpu": 1}}, SMALL | {"limits": {"nvidia.com/gpu": 1}}),
        ({}, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1Gi"}}),
        ({}, {}, None),
    ],
)
def test_a_resource_has_the_values_of_the_template_or_of_the_installation(
    ours: dict[str, Any], theirs: dict[str, Any], result: dict[str, Any] | None
) -> None:
    settings = Settings(resources={"learner": ours})
    trainer = {"name": "trainer"} | ({"resources": theirs} if theirs else {})
    spec = learner(settings, containers=[trainer, {"name": "proxy", "image": "envoy"}])
    assert spec["containers"][0].get("resources") == result
    assert "resources" not in spec["containers"][1], "the container is the user's"


def test_each_role_has_its_own_resources() -> None:
    resources = {role: {"requests": {"cpu": cpu}} for role, cpu in ROLES.items()}
    pods = settled(Settings(resources=resources), **dedicated(1)).pods
    requested = {name: pod["spec"]["containers"][0]["resources"] for name, pod in pods.items()}
    assert {name.split("-")[1]: value for name, value in requested.items()} == resources


ROLES: dict[Role, str] = {"learner": "1", "replay": "2", "sampler": "3"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("field", "theirs"),
    [
        ("nodeSelector", {"disk": "fast"}),
        ("nodeSelector", {}),
        ("tolerations", [{"key": "spot", "operator": "Exists"}]),
        ("tolerations", []),
        ("runtimeClassName", "gvisor"),
    ],
)
def test_where_pods_run_is_decided_by_the_installation_or_as_a_whole_by_the_template(
    field: str, theirs: object
) -> None:
    ours = {"nodeSelector": {"pool": "rl"}, "tolerations": [GPU], "runtimeClassName": "nvidia"}
    settings = Settings(node_selector={"pool": "rl"}, tolerations=(GPU,), runtime_class="nvidia")
    for pod in settled(settings, **dedicated(1)).pods.values():
        assert {name: pod["spec"][name] for name in ours} == ours
    spec = learner(settings, **{field: theirs})
    assert {name: spec[name] for name in ours} == ours | {field: theirs}
    assert not ours.keys() & learner().keys(), "without settings the cluster decides"


def test_gpus_and_another_container() -> None:
    gpus = {"limits": {"nvidia.com/gpu": 1}}
    spec = learner(
        containers=[{"name": "trainer", "resources": gpus}, {"name": "proxy", "image": "envoy"}],
        serviceAccountName="reader",
    )
    trainer, proxy = spec["containers"]
    assert trainer["resources"] == gpus
    assert trainer["securityContext"]["readOnlyRootFilesystem"] is True
    assert proxy == {"name": "proxy", "image": "envoy"}
    assert spec["automountServiceAccountToken"] is False, "a service account is for its pull secrets only"
