"""Refuters: tests that try to break a result, each with a verdict in words (`policy.check`, `gbpl check`)."""
