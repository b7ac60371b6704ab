"""deltaworks."""
