"""Without a simulator: what policies are worth by held-out episodes (`judging`), and choosing by it (`tune`)."""
