"""An object store in Spark: Hadoop's S3A reaches it, under the addresses that paths have everywhere else.

It reads tables and writes none: Delta looks whether the next version of a log is there and then puts it, so that two
writers may replace each other's. S3A has conditional requests, but `create` without overwriting is none of them, and
with `fs.s3a.performance.flags=create` it does not even look.

It writes Spark's checkpoint, in folders that only one driver uses (`control.checkpoint_folders`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.stack.jars import OBJECT_STORE, ensure_jars

AWAY = (
    "AWSApiCallTimeoutException",
    "AWSClientIOException",
    "AWSServiceThrottledException",
    "AWSStatus500Exception",
    "ConnectTimeoutException",
    "SdkClientException",
)
"""In what Spark says when the store does not answer."""
_NO_SECRET = "certificates"
"""Java wants a password for a file with certificates, which are public."""
_JARS = "spark.jars"


def with_jars(settings: Settings, path: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark for a session that uses a path: its own ones, and the jars of an object store.

    Raises:
        StackError: the jars are missing and cannot be downloaded.
    """
    if not isinstance(path, ObjectPath):
        return dict(own)
    jars = [*filter(None, [own.get(_JARS)]), *map(str, ensure_jars(settings, OBJECT_STORE))]
    return {**own, _JARS: ",".join(jars)}


def reach(spark: SparkSession, path: ObjectPath, scratch: Path) -> None:
    """Tells the JVM of a session how to reach the bucket of a path; before it has made any request.

    Spark's settings would be on the command line of the JVM, where everybody can read them: these have secrets.

    Args:
        spark: the session, with the jars of `OBJECT_STORE`.
        path: of a table, or of the folder of all.
        scratch: a folder for its files.
    """
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    for name, value in path.store.hadoop().items():
        hadoop.set(name, value)
    if (authorities := path.store.arrow().get("tls_ca_file_path")) is not None:
        _trust(context._jvm, authorities, scratch / "authorities.p12")


def _trust(jvm: Any, certificates: str, store: Path) -> None:
    """Lets the JVM trust the authorities of a file in PEM, and no others; it reads its property at its first use."""
    trusted = jvm.java.security.KeyStore.getInstance("PKCS12")
    trusted.load(None, None)
    source = jvm.java.io.FileInputStream(certificates)
    found = jvm.java.security.cert.CertificateFactory.getInstance("X.509").generateCertificates(source)
    source.close()
    for number, certificate in enumerate(found):
        trusted.setCertificateEntry(str(number), certificate)
    target = jvm.java.io.FileOutputStream(str(store))
    trusted.store(target, jvm.java.lang.String(_NO_SECRET).toCharArray())
    target.close()
    for name, value in (("", str(store)), ("Type", "PKCS12"), ("Password", _NO_SECRET)):
        jvm.java.lang.System.setProperty(f"javax.net.ssl.trustStore{name}", value)
