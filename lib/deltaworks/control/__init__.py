"""What operates the streams: who may run, how they are, what they were told; for driver, command line and Airflow."""
