"""A mount that a holder keeps, and programs that use it while its daemons end."""
