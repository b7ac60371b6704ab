"""The job of the check, as a file that is copied into its project."""
