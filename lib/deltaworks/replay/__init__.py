"""Replays: history processed again, compared, checked, and published under a live stream.

- `model`: what a replay is asked for, and where it keeps what it has
"""
