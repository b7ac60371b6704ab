"""What an operator sees and does in Airflow, on the real stack; `make check-operators`."""
