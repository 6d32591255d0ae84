"""Many runs in one compiled program: what a run is, its tables on the device, one update of all, and the pack."""
