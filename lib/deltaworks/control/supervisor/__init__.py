"""The supervisor: one process per home that starts the drivers of the streams and restarts them when they die.

- `address`: where it listens, and the token that it requires
- `messages`: its questions and answers
- `client`: asks it, and starts it if none answers
- `keeping`: what it does about a stream: decides (`control.reconcile`) and deploys (`control.actions`)
- `server`: the process, which holds the drivers, answers, and acts when one ends

It keeps nothing that is not in the registry or in the home. So it may be killed at any time: drivers keep running, and
the next one adopts them and finishes restarts in progress. It survives outages of Airflow, PostgreSQL and Kafka.

`streams__reconcile` in Airflow does the same once a minute, in case the supervisor does not.
"""
