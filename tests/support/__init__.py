"""What tests share: a PostgreSQL server, and the staging of races."""
