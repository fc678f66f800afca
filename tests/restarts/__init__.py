"""A mount that a holder keeps, and programs that write while its daemon ends again and again."""
