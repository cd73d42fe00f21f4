"""`millrace sql`: a query over topics, on DuckDB in this process or on Spark."""
