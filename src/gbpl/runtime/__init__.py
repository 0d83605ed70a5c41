"""What the machine is for: devices, threads, memory, files, progress, engines. Knows nothing of policies."""
