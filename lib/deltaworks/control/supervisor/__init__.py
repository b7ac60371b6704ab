"""The supervisor: one process per home, in which the drivers of the streams live and which starts again what dies.

- `address`: where it listens, and the token that it asks for
- `messages`: what is asked and answered
- `client`: asks it; starts it where none answers
- `keeping`: what it does about a stream: decides (`control.reconcile`) and deploys (`control.actions`)
- `server`: the process: holds the drivers, answers, and looks when something ends

It keeps nothing that is not in the registry or in the home. So it may be killed at any time: drivers go on, and the
next one adopts them and finishes what was begun. Airflow, PostgreSQL and Kafka may go away without it.

`streams__reconcile` in Airflow is the second line: it does the same once a minute, if the supervisor does not.
"""
