"""What serves all streams: healing and maintenance. The pipelines need no file here (`deltaworks.airflow.bundle`)."""

from deltaworks.airflow.maintenance import maintenance_dag
from deltaworks.airflow.reconcile import reconcile_dag

reconcile = reconcile_dag()
maintenance = maintenance_dag()
