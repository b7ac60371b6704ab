"""The stores of tasks: a local store per task, and its changelog in the checkpoint, which is what counts."""
