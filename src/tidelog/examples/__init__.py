"""Jobs to run and to read: `tidelog run wordcount`, `tidelog run sessions`."""
