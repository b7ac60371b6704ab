"""What serves all streams: healing, closed days, dead letters, maintenance.

Pipelines need no file (`deltaworks.airflow.bundle`).
"""

from deltaworks.airflow.days import days_dag
from deltaworks.airflow.dead_letters import dead_letters_dag
from deltaworks.airflow.maintenance import maintenance_dag
from deltaworks.airflow.reconcile import reconcile_dag

reconcile = reconcile_dag()
days = days_dag()
dead_letters = dead_letters_dag()
maintenance = maintenance_dag()
