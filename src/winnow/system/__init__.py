"""What every part uses of the operating system: files, locks, checkpoints, processes, progress bars, metrics."""
