"""What runs: claims, leases, execution, settling."""
