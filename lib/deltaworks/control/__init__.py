"""Operation of the streams, for driver, command line and Airflow: who may run, their states, and commands to them."""
