"""The streams in Kubernetes: a kustomization, from `infra/kubernetes`.

It has no Kafka, no PostgreSQL and no Airflow: a cluster has those. What runs in it is the image of `compose`.
"""

from __future__ import annotations

from deltaworks.settings import Settings


def kubernetes_files(settings: Settings) -> dict[str, str]:
    """A base and an example of an overlay: the path of each file below their folder -> its text."""
    folder = settings.infra / "kubernetes"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}
