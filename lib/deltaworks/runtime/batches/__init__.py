"""What a micro-batch takes, and when there is one."""
