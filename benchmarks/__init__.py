"""Measurements and suites that take longer than a test."""
