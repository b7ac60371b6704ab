"""The components around the streams (Kafka, PostgreSQL, Airflow): what they are, and how they run on this machine.

- `components`: what `infra/components.toml` says; `compose`: the same stack as containers, and their secrets;
  `kubernetes`: the streams in a cluster; `constraints`: the versions of packages
- `lifecycle`: up, down, status; `runner`: the process that keeps the components running; `state`: what the two exchange
- `native`: the runner's questions about each component; `kafka`, `postgres`, `airflow`: the answers, and the secrets
- `sql`: the SQL server, in which clients of JDBC read the tables; `seaweedfs`: an object store, and its keys;
  `schema_registry`: a schema registry, and its database; `spark`: a cluster of Spark; `credentials`: a login for a
  component
- `connect`: workers of Kafka Connect; `connect_plugins`: their connectors; `java_clients`: settings of Kafka's clients
  in Java
- `registry`: migrates the registry's tables; `airflow_api`: a client of Airflow's REST API
- `java`, `jars`, `ivy`: finds a Java; jars and their locks; downloads them; `wheels`: a program in a locked package;
  `go`: a program that is built from locked modules
- `ports`: finds free ports; `tether`: ends a process with the one that started it
"""
