"""What kustomize makes of `infra/kubernetes`, and what the schemas of Kubernetes say of that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.kubernetes import kubernetes_files
from tests.support.go_programs import built

ROOT = Path(__file__).parents[2]
VERSION = "1.37"


@pytest.fixture(scope="module")
def kustomize() -> Path:
    """Kustomize's own library, see `kustomize/`."""
    return built(Path(__file__).parent / "kustomize")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As `deltaworks kubernetes` writes it, with an overlay that is a copy of the example."""
    for name, text in kubernetes_files(Settings.from_environment()).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(tmp_path / "overlays/example", tmp_path / "overlays/prod")
    shutil.copytree(tmp_path / "overlays/cluster", tmp_path / "overlays/spark")
    return tmp_path


def manifests(kustomize: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Kind and name -> the resource."""
    done = subprocess.run([kustomize, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(done.stdout)}


def containers(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    pods = [each["spec"]["template"]["spec"] for each in found.values() if "template" in each.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


BASE = {
    "ConfigMap/deltaworks",
    "ConfigMap/deltaworks-environment",
    "Job/deltaworks-registry",
    "Service/deltaworks-supervisor",
    "StatefulSet/deltaworks-supervisor",
}
FOR_EXECUTORS = {
    "ConfigMap/deltaworks-executor",
    "Role/deltaworks-executors",
    "RoleBinding/deltaworks-executors",
    "ServiceAccount/deltaworks-supervisor",
}


@pytest.mark.parametrize(
    ("part", "names"), [("base", BASE), ("overlays/prod", BASE), ("overlays/spark", BASE | FOR_EXECUTORS)]
)
def test_what_is_built_fits_the_schemas_and_refers_to_what_there_is(
    kustomize: Path, folder: Path, part: str, names: set[str]
) -> None:
    found = manifests(kustomize, folder / part)

    assert found.keys() == names
    for resource in found.values():
        assert kubernetes_validate.validate(resource, VERSION, strict=True) == VERSION
        assert resource["metadata"]["labels"]["app.kubernetes.io/part-of"] == "deltaworks"
    labels = found["StatefulSet/deltaworks-supervisor"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service/deltaworks-supervisor"]["spec"]["selector"].items() <= labels.items()
    assert found["StatefulSet/deltaworks-supervisor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_base_runs_the_image_of_this_version(kustomize: Path, folder: Path) -> None:
    image = read_components(ROOT / "infra").software["deltaworks"].image

    assert {each["image"] for each in containers(manifests(kustomize, folder / "base"))} == {image}


def test_an_overlay_decides_about_image_namespace_settings_and_size(kustomize: Path, folder: Path) -> None:
    found = manifests(kustomize, folder / "overlays/prod")
    claim = found["StatefulSet/deltaworks-supervisor"]["spec"]["volumeClaimTemplates"][0]["spec"]

    assert {each["image"] for each in containers(found)} == {"registry.example.com/shop/streams:2026-11-25"}
    assert {each["metadata"]["namespace"] for each in found.values()} == {"streams"}
    assert found["ConfigMap/deltaworks"]["data"] == {
        "deltaworks.toml": (folder / "overlays/prod/deltaworks.toml").read_text()
    }
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast-ssd", "200Gi")
    assert found["StatefulSet/deltaworks-supervisor"]["spec"]["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "memory": "12Gi"},
        "limits": {"memory": "12Gi"},
    }


@pytest.mark.parametrize("part", ["base", "overlays/prod"])
def test_without_executors_a_supervisor_has_no_rights(kustomize: Path, folder: Path, part: str) -> None:
    pod = manifests(kustomize, folder / part)["StatefulSet/deltaworks-supervisor"]["spec"]["template"]["spec"]

    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False


def test_with_executors_a_supervisor_may_make_pods(kustomize: Path, folder: Path) -> None:
    found = manifests(kustomize, folder / "overlays/spark")
    pod = found["StatefulSet/deltaworks-supervisor"]["spec"]["template"]["spec"]
    (supervisor,) = pod["containers"]

    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("deltaworks-supervisor", True)
    assert found["RoleBinding/deltaworks-executors"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "deltaworks-supervisor", "namespace": "streams"}
    ]
    assert {each["metadata"]["namespace"] for each in found.values()} == {"streams"}
    assert [variable["name"] for variable in supervisor["env"]] == ["DELTAWORKS_SUPERVISOR_HOST"]
    mounts = {mount["name"]: mount["mountPath"] for mount in supervisor["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys() | {"home"}
    assert (mounts["executor"], volumes["executor"]["configMap"]) == (
        "/etc/deltaworks",
        {"name": "deltaworks-executor"},
    )
    template = found["ConfigMap/deltaworks-executor"]["data"]
    assert template == {"executor.yaml": (folder / "components/executors/executor.yaml").read_text()}
