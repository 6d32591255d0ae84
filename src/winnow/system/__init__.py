"""Files, locks, checkpoints, child processes, cores, progress bars, metrics and Ray: the base of every other part."""
