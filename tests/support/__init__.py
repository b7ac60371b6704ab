"""Helpers of several folders of tests: the stack, processes, fault points, sinks, an old checkpoint, data defects."""
