"""Airflow's entry to the reconciler; the DAGs of the pipelines need no file here (`deltaworks.airflow.bundle`)."""

from deltaworks.airflow.reconcile import reconcile_dag

dag = reconcile_dag()
