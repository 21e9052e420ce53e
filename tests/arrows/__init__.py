"""Who may import whom."""
