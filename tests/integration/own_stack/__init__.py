"""Tests on a whole stack of their own, which ends with them."""
