"""Stores of a running stream are asked all the time, while everything is killed."""
