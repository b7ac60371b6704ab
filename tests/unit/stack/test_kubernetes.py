"""The manifests in `infra/kubernetes` fit Kubernetes' schemas, run what the components run, and restrict their pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deltaworks.config import Reference
from deltaworks.control import cluster
from deltaworks.control.clusters.kubernetes import Kubernetes
from deltaworks.control.supervisor import client
from deltaworks.settings import Settings
from deltaworks.spark import pod as pod_program
from deltaworks.stack.components import read_components

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "infra/kubernetes"
SECRETS = "/run/secrets/deltaworks"
VERSIONS = ("1.32", "1.37")
"""The oldest that is tested, and the newest."""
RESOURCES: list[dict[str, Any]] = [
    resource
    for file in ("registry.yaml", "supervisor.yaml")
    for resource in yaml.safe_load_all((FOLDER / "base" / file).read_text())
]
EXECUTORS = FOLDER / "components/executors"
RIGHTS: list[dict[str, Any]] = list(yaml.safe_load_all((EXECUTORS / "rights.yaml").read_text()))
EXECUTOR: dict[str, Any] = yaml.safe_load((EXECUTORS / "executor.yaml").read_text())
PODS = {
    resource["metadata"]["name"]: resource["spec"]["template"]["spec"]
    for resource in RESOURCES
    if "template" in resource["spec"]
}
COMPONENTS = read_components(ROOT / "infra").by_name


def container(name: str) -> dict[str, Any]:
    (found,) = PODS[f"deltaworks-{name}"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", [*RESOURCES, *RIGHTS, EXECUTOR], ids=lambda resource: resource["kind"])
def test_a_resource_fits_the_schema_of_kubernetes(resource: dict[str, Any], version: str) -> None:
    assert kubernetes_validate.validate(resource, version, strict=True) == version


def test_pods_run_their_components() -> None:
    registry, supervisor = container("registry"), container("supervisor")

    assert registry["command"] == ["python", "-m", *COMPONENTS["registry"].command]
    assert supervisor["command"] == ["dumb-init", "--", "python", "-m", *COMPONENTS[client.NAME].command, client.DRAIN]
    assert PODS["deltaworks-supervisor"]["terminationGracePeriodSeconds"] == 75
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert supervisor[probe]["exec"]["command"] == ["python", "-m", client.__name__]
    start = supervisor["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= COMPONENTS[client.NAME].ready_timeout_s


def test_there_is_one_supervisor_and_its_home_outlives_it() -> None:
    (found,) = [resource for resource in RESOURCES if resource["kind"] == "StatefulSet"]
    (claim,) = found["spec"]["volumeClaimTemplates"]
    (mount,) = [m for m in container("supervisor")["volumeMounts"] if m["name"] == claim["metadata"]["name"]]

    assert found["spec"]["replicas"] == 1
    assert set(found["spec"]["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    for folder in ("DELTAWORKS_HOME", "DELTAWORKS_CACHE"):
        assert Path(environment()[folder]).parent == Path(mount["mountPath"])


def environment() -> dict[str, str]:
    generators = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())["configMapGenerator"]
    return dict(pair.split("=", 1) for generator in generators for pair in generator.get("literals", ()))


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted(name: str) -> None:
    """As the Pod Security Standard `restricted` demands, and more."""
    pod, (own,) = PODS[name], PODS[name]["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 50000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert own["resources"]["requests"].keys() == {"cpu", "memory"} and "memory" in own["resources"]["limits"]


def test_executors_are_restricted_as_the_supervisor_is() -> None:
    pod, supervisor = EXECUTOR["spec"], PODS["deltaworks-supervisor"]
    (own,) = pod["containers"]

    expected = {name: value for name, value in supervisor["securityContext"].items() if name != "fsGroupChangePolicy"}
    assert pod["securityContext"] == expected
    assert own["securityContext"] == supervisor["containers"][0]["securityContext"]
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert own["command"] == ["dumb-init", "--", "python", "-m", pod_program.__name__]
    writable = {mount["name"]: mount["mountPath"] for mount in own["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"] if volume["emptyDir"] == {}} == writable.keys()
    assert own["workingDir"] in writable.values()


def test_a_supervisor_with_executors_may_make_pods_and_nothing_else() -> None:
    account, role, binding = RIGHTS

    assert (account["kind"], role["kind"], binding["kind"]) == ("ServiceAccount", "Role", "RoleBinding")
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert "*" not in rule["verbs"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.toml")), ids=lambda file: file.parent.name)
def test_the_settings_are_settings_and_their_secrets_are_where_pods_have_them(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    for key in ("registry-url", "kafka-password", "s3-access-key", "s3-secret-key"):
        (tmp_path / key).write_text(f"{key} of the Secret")
    (tmp_path / "deltaworks.toml").write_text(text.replace(SECRETS, str(tmp_path)))

    found = Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path)})

    assert found.registry_url == "registry-url of the Secret"
    password = found.cluster.client({}).get("sasl.password", "none")
    assert password == ("kafka-password of the Secret" if "[kafka]" in text else "none")
    if "[s3]" in text:
        assert found.storage is not None
    for pod in PODS.values():
        (own,) = pod["containers"]
        mounts = {mount["name"]: mount for mount in own["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert mounts["secrets"]["mountPath"] == SECRETS
        assert volumes["secrets"]["secret"] == {"secretName": "deltaworks", "defaultMode": 0o440}
        assert mounts["settings"]["mountPath"] == f"{environment()['DELTAWORKS_PROJECT']}/deltaworks.toml"
        assert volumes["settings"]["configMap"] == {"name": "deltaworks"}


def test_the_streams_of_the_example_with_executors_run_there() -> None:
    overlay = FOLDER / "overlays/cluster"
    kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    (resource,) = [each for each in RESOURCES if each["kind"] == "StatefulSet"]
    variables = {"DELTAWORKS_PROJECT": str(overlay)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reference, "read", lambda *_: "of the Secret")
        settings = Settings.from_environment(variables)

    found, own = cluster.of(settings, "payments"), settings.spark_of("payments")

    assert isinstance(found, Kubernetes)
    assert (found.cores, found.pods["spark.executor.instances"]) == (8, "2")
    assert own["spark.kubernetes.namespace"] == kustomization["namespace"]
    assert own["spark.kubernetes.container.image"] == f"{image['newName']}:{image['newTag']}"
    assert own["spark.kubernetes.driver.pod.name"] == f"{resource['metadata']['name']}-0"
    assert own["spark.kubernetes.executor.podTemplateFile"] == "/etc/deltaworks/executor.yaml"
