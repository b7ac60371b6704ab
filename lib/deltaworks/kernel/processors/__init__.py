"""What the nodes of `topology/nodes` do, file by file under the same names; `build.py` is the table of all."""
