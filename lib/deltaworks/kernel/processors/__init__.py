"""The behaviour of the nodes of `topology/nodes`, in files of the same names; `build.py` is the table of all."""
