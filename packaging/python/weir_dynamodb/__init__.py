"""Weir's programs, and the processes that tests start with them (`weir_dynamodb.testing`)."""
