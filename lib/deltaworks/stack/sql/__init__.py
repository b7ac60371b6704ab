"""The SQL server: Spark's Thrift server (JDBC), in which the tables of the home can be read, and nothing else.

- `server`: prepares it, and becomes its JVM; `client`: whether it lets a client in
- `compiled`: compiles `*.scala` with the compiler of the PySpark wheel, so that a Java runtime is enough
- `Server.scala`: password, and a service without settings from clients; `Tables.scala`: which tables there are, and at
  which versions; `ReadOnly.scala`: what a statement may be; `functions.txt`: the functions that it may call
"""
