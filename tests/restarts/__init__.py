"""Programs that hold files open while the daemon of their mount is killed and restarted."""
