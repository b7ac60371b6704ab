"""The kinds of clusters that run the tasks of a stream, a module for each; `control.cluster` finds the right one."""
